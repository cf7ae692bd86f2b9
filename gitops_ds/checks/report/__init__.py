"""The findings of a check in each output format.

`findings` sorts them and removes secrets once for all formats; `formats` selects the module of a
format. A new format is a module here and a row there.
"""
