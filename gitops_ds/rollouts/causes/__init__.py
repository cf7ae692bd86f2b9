"""The cause of each template: the commit of the branch that gave an agent its present template."""
