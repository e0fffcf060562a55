"""What schemathesis has to know of the API beside its description."""

import schemathesis

# Lines of JSON are sent as any text is.
schemathesis.serializer.alias("application/jsonl", "text/plain")
# So is a bundle: what is tried is text that is no archive.
schemathesis.serializer.alias("application/zip", "text/plain")
