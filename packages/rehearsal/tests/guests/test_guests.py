"""Guests: what a file may say, where its problems are, and what a command line becomes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gameday.cli import run
from gameday.errors import DocumentError, ProgramMissingError
from gameday.exit_codes import ExitCode
from gameday_rehearsal.guests.load import load_guest, read_guest
from gameday_rehearsal.guests.placeholders import Placeholder, fill, placeholders

GUEST = """\
apiVersion: gameday/v1
kind: Guest
name: npd
version: v1.34
detector: node-problem-detector
command: [sh, -c, 'exec "$@" {{x}}', -, "{kmsg}"]
environment: {NODE_NAME: "{node}"}
says: 'unhealthy'
"""


def written(folder: Path, text: str = GUEST) -> Path:
    path = folder / "npd.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read_with_its_profile_and_its_folder(tmp_path: Path) -> None:
    loaded = load_guest(str(written(tmp_path)))
    assert loaded.guest.version == "v1.34"
    assert loaded.guest.per_node
    assert loaded.folder == tmp_path
    assert loaded.profile and loaded.profile.name == "node-problem-detector"
    assert loaded.profile_file is None


def test_a_profile_may_lie_beside_the_file(tmp_path: Path) -> None:
    from gameday.detectors.load import find_detector

    text = find_detector("konduktor").read_text().replace("name: konduktor", "name: mine", 1)
    (tmp_path / "mine.yaml").write_text(text)
    loaded = read_guest(written(tmp_path, GUEST.replace("node-problem-detector", "mine.yaml")))
    assert loaded.profile and loaded.profile.name == "mine"
    assert loaded.profile_file == tmp_path / "mine.yaml"


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        (
            '"{kmsg}"',
            '"{kmesg}"',
            6,
            r"\{kmesg\} is not a placeholder; there are \{node\} \{kmsg\} .* write \{\{ ",
        ),
        ('"{node}"', '"{"', 7, r"environment.NODE_NAME: \{ is not a placeholder"),
        ("unhealthy", "(", 8, "is not a regular expression"),
        ("name: npd", "name: NPD", 3, "must be lower-case letters"),
        ("version:", "verzion:", 4, "did you mean `version`"),
        ("NODE_NAME:", "NODE-NAME:", 7, "must match"),
        ("node-problem-detector", "node-problem-detektor", 5, "did you mean node-problem-detector"),
        ("node-problem-detector", "gone.yaml", None, "gone.yaml"),
        ("[sh, -c,", "[sh, -c, 7,", 6, "put it in quotes"),
        ("[sh, -c,", "['', -c,", 6, "the first word is the program"),
        ("says:", "cluster: kind\nsays:", 8, "must be one of: embedded, lab"),
    ],
)
def test_a_problem_has_its_line(tmp_path: Path, old: str, new: str, line: int | None, said: str) -> None:
    path = written(tmp_path, GUEST.replace(old, new, 1))
    with pytest.raises(DocumentError, match=said) as caught:
        read_guest(path)
    assert line is None or caught.value.problems[0].line == line


def test_validate_knows_guests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["validate", str(written(tmp_path))]) == ExitCode.PASSED
    assert capsys.readouterr().out.startswith("ok")
    assert run(["validate", str(written(tmp_path, GUEST.replace("{kmsg}", "{}")))]) == ExitCode.USAGE
    assert "npd.yaml:6:" in capsys.readouterr().err


def test_a_command_line_is_a_guest_of_its_programs_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "My_Detector.py"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    loaded = load_guest("./My_Detector.py --node {node} 'two words'")
    assert loaded.guest.name == "my-detector-py"
    assert loaded.guest.command == ("./My_Detector.py", "--node", "{node}", "two words")
    assert (loaded.guest.version, loaded.profile, loaded.folder) == ("", None, tmp_path)
    assert not load_guest(f"{sys.executable} --all").guest.per_node


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("detector '", "is not a command: No closing quotation"),
        ("", "is not a command: it is empty"),
        ("true {nodes}", r"--guest: \{nodes\} is not a placeholder"),
    ],
)
def test_a_command_line_that_is_none(value: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        load_guest(value)


@pytest.mark.parametrize("program", ["no-such-detector", "{folder}/no-such-detector", "./no-such-detector"])
def test_a_program_that_does_not_exist(tmp_path: Path, program: str) -> None:
    path = written(tmp_path, GUEST.replace("[sh,", f"['{program}',"))
    with pytest.raises(ProgramMissingError, match=r"guest npd: command not found: .*no-such-detector"):
        load_guest(str(path))


def test_a_program_whose_place_is_known_only_later_is_not_looked_for(tmp_path: Path) -> None:
    load_guest(str(written(tmp_path, GUEST.replace("[sh,", "['{state}/program',"))))


def test_a_program_is_looked_for_where_the_guest_looks(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "mine").symlink_to(sys.executable)
    own = GUEST.replace("[sh,", "[mine,").replace("environment: {", 'environment: {PATH: "{folder}/bin", ')
    assert load_guest(str(written(tmp_path, own))).guest.command[0] == "mine"
    with pytest.raises(ProgramMissingError):
        load_guest(str(written(tmp_path, own.replace("/bin", "/sbin"))))


def test_placeholders_are_filled_and_braces_kept() -> None:
    text = "--at={node}:{port} {{{node}}} {{}}"
    assert list(placeholders(text)) == [Placeholder.NODE, Placeholder.PORT, Placeholder.NODE]
    assert fill(text, {Placeholder.NODE: "{port}"}) == "--at={port}:{port} {{port}} {}"
