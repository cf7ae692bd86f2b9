"""What the commands share that write commits: the branch's tip, the edit of files, the push."""
