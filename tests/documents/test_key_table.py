"""Tables of keys hold words; what needs paragraphs follows them."""

from __future__ import annotations

from gameday.documents.key_table import key_table

SCHEMA = {
    "required": ["image"],
    "properties": {
        "image": {"type": "string", "description": "Image of the\npods.\n\nName it by\na digest.\n\nNever by a tag."},
        "limit": {"type": "integer", "default": 3, "description": "Most pods."},
    },
}
HEAD = ["| key | default | takes | meaning |", "|---|---|---|---|"]
LIMIT = "| `limit` | `3` | integer | Most pods. |"


def test_further_paragraphs_of_a_description_follow_the_table() -> None:
    assert list(key_table(SCHEMA, {}, title="key")) == [
        *HEAD,
        "| `image` | required | string | Image of the pods. |",
        LIMIT,
        "",
        "* `image`: Name it by a digest. Never by a tag.",
    ]


def test_a_table_whose_descriptions_are_short_ends_with_its_last_row() -> None:
    assert list(key_table(SCHEMA, {}, title="key", without=["image"])) == [*HEAD, LIMIT]
