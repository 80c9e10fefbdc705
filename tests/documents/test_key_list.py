"""Lists of keys have what a key takes, its default and its whole description."""

from __future__ import annotations

from gameday.documents.key_list import key_list

SCHEMA = {
    "required": ["image"],
    "properties": {
        "image": {"type": "string", "description": "Image of the\npods.\n\nName it by\na digest."},
        "limit": {"type": "integer", "default": 3, "minimum": 1, "maximum": 9, "description": "Most pods."},
        "zone": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "description": "Any zone."},
    },
}


def test_an_item_has_the_values_the_default_and_the_description_of_a_key() -> None:
    assert list(key_list(SCHEMA, {})) == [
        "* `image` (string; required): Image of the pods. Name it by a digest.",
        "* `limit` (integer, 1 to 9; default `3`): Most pods.",
        "* `zone` (string): Any zone.",
    ]


def test_keys_can_be_left_out() -> None:
    assert list(key_list(SCHEMA, {}, without=["image", "zone"])) == [
        "* `limit` (integer, 1 to 9; default `3`): Most pods."
    ]
