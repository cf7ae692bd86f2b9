"""The page in a real browser, and its parts without one."""
