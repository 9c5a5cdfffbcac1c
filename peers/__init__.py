"""The real systems that Headrace is measured against, fetched and run on this machine."""
