"""The validation of documents by JSON schemas: manifests by those of Kubernetes, and the files of a
repository by the closed ones in schemas/.

`fastcheck` accepts valid documents; jsonschema reads only those that it does not accept, and
`error_messages` translates its errors.
"""
