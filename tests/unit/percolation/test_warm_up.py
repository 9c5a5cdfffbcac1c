"""What is compiled before the first document comes is all that documents and queries need."""

import subprocess
import sys

SCRIPT = """
import sys
from headrace.percolation import Percolator, read_mapping
from headrace.percolation.percolator import warm_up

def compiled():
    loops = [
        (name, key, value) for name, module in list(sys.modules.items()) if name.startswith("headrace.percolation")
        for key, value in vars(module).items() if hasattr(value, "signatures")
    ]
    return {(name, key): len(value.signatures) for name, key, value in loops if value.signatures}

warm_up()
before = compiled()
kinds = {"title": {"type": "text", "analyzer": "english"}, "price": "double", "tags": "keyword", "n": "long",
         "place": "geo_point", "at": "date", "sold": "boolean"}
percolator = Percolator({"m": read_mapping({"fields": kinds, "default_fields": ["title"]})})
for number, text in enumerate([
    'title:"racing bike"~2 AND price:<500', "titl* fuzzi~ /re.*x/",
    "place:within(1, 1, 10km) at:2026", "tags:(a b c)@2",
    "n:[1 TO 5]^2 -sold:true", "parts:nested(a:1 AND b:>2)", "*:*", "other:word", "title:r?c*",
]):
    percolator.add(f"q{number}", text, mapping="m")
document = {"title": "racing bikes regex", "price": 4, "tags": ["a", "b"], "n": 3, "place": [1, 1], "at": "2026-01-01",
            "sold": False, "parts": [{"a": 1, "b": 3}], "other": "word"}
assert len(percolator.percolate(document, "m")) == 9
for _ in percolator.percolate_many([document] * 40, "m"):
    pass
after = compiled()
assert before and after == before, {loop: count for loop, count in after.items() if count != before.get(loop)}
"""


def test_no_loop_is_compiled_for_a_document_once_it_is_warm() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
