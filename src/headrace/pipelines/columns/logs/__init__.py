"""Lines of logs to columns: a compiled walk for each form, with the reader in `headrace.log_formats` as its measure.

What a walk does not know (an escape, bytes that are not UTF-8, a user's name with spaces) goes to that reader, which
decides.
"""
