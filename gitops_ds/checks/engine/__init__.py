"""What runs the rules: their declaration (`rule`), their inputs (`contexts`), and the check of a
bundle (`check`).

The rules themselves are in the folders beside this one; none of them imports `check`.
"""
