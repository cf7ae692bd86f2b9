"""The page: values (`view_models`), HTML (`rendering`, `templates/`), HTTP (`routes`).

Modules beside these have the values of one part of it and are pure.
"""
