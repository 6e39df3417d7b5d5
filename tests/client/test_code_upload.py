"""What of a directory is uploaded as code, and what is said of the rest."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import pytest
from evenkeel.cli.bundle import pack
from evenkeel.client import ClientError
from evenkeel.preparation.bundles import unpack

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def git(folder: Path, *arguments: str) -> None:
    own = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *own, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    place.mkdir()
    git(place, "init", "--quiet")
    (place / "train.py").write_text("print(1)\n")
    return place


def listed(folder: Path) -> dict[str, str]:
    """Names, with where links lead."""
    with tarfile.open(fileobj=io.BytesIO(pack(folder).archive)) as tar:
        return {member.name: member.linkname for member in tar}


def said(folder: Path) -> str:
    return "\n".join(pack(folder).notes)


def test_what_git_tracks_goes_along_although_it_is_ignored(folder: Path) -> None:
    (folder / ".gitignore").write_text("build\n*.log\n")
    for name in ("build", "keep.log", "other.log"):
        (folder / name).write_text("x")
    git(folder, "add", "-f", "build", "keep.log")
    assert {"build", "keep.log"} <= set(listed(folder))
    assert "other.log" not in listed(folder)
    assert "1 (other.log)" in said(folder)


def test_what_the_list_at_the_top_names_is_left_out_although_it_is_tracked(folder: Path) -> None:
    (folder / "data").mkdir()
    (folder / "data" / "a\nb").write_text("x")
    git(folder, "add", "data")
    (folder / ".evenkeelignore").write_text("data/\n")
    assert set(listed(folder)) == {".evenkeelignore", "train.py"}
    assert "1 ('data/a\\nb')" in said(folder)


def test_nested_repositories_and_submodules_go_along_by_their_own_rules(folder: Path, tmp_path: Path) -> None:
    inner = folder / "vendor" / "sub"
    inner.mkdir(parents=True)
    git(inner, "init", "--quiet")
    for name, text in {"y.py": "", "z.bin": "", ".gitignore": "*.bin\n", "deep/x.py": ""}.items():
        (inner / name).parent.mkdir(exist_ok=True)
        (inner / name).write_text(text)
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "--quiet")
    (library / "lib.py").write_text("")
    git(library, "add", ".")
    git(library, "commit", "--quiet", "-m", "one")
    git(folder, "submodule", "--quiet", "add", str(library), "lib")
    expected = {"vendor/sub/y.py", "vendor/sub/.gitignore", "vendor/sub/deep/x.py", "lib/lib.py", ".gitmodules"}
    assert expected | {"train.py"} == set(listed(folder)) - {"lib/.git"}
    assert ".git" not in {part for name in listed(folder) for part in name.split("/")}
    git(folder, "submodule", "--quiet", "deinit", "-f", "lib")
    assert "not checked out" in said(folder)
    assert "(lib)" in said(folder)


def test_links_that_stay_inside_go_along_and_others_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "r.py").write_text("")
    for name, target in {
        "entry.py": "train.py", "linked": "real", "nowhere": "missing.py", "absolute": str(folder / "real"),
        "real/up": "../train.py", "out": "/etc/passwd", "sideways": "../other", "circle": "circle",
    }.items():  # fmt: skip
        (folder / name).symlink_to(target)
    links = {name: target for name, target in listed(folder).items() if target}
    assert links == {
        "entry.py": "train.py", "linked": "real", "nowhere": "missing.py", "absolute": "real", "real/up": "../train.py",
    }  # fmt: skip
    assert "3 (circle, out, sideways)" in said(folder)
    with io.BytesIO(pack(folder).archive) as archive:
        unpack(archive, tmp_path / "unpacked", max_files=100, max_bytes=10**6)
    assert (tmp_path / "unpacked" / "linked" / "r.py").exists()


def test_a_worktree_and_a_folder_of_a_repository_are_listed_as_git_does(folder: Path, tmp_path: Path) -> None:
    (folder / ".gitignore").write_text("*.pt\nbuild/\n")
    (folder / "part").mkdir()
    for name in ("part/a.py", "part/a.pt", "part/kept.pt"):
        (folder / name).write_text("x")
    git(folder, "add", "-f", "train.py", "part/a.py", "part/kept.pt", ".gitignore")
    git(folder, "commit", "--quiet", "-m", "one")
    assert set(listed(folder / "part")) == {"a.py", "kept.pt"}
    git(folder, "worktree", "add", "--quiet", str(tmp_path / "other"))
    assert set(listed(tmp_path / "other")) == {".gitignore", "part/a.py", "part/kept.pt", "train.py"}
    (folder / "build").mkdir()
    (folder / "build" / "made.py").write_text("")
    assert set(listed(folder / "build")) == {"made.py"}, "an ignored folder that is named stands for itself"


def test_variables_of_git_change_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = pack(folder).archive
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE"):
        monkeypatch.setenv(name, str(tmp_path / "nothing"))
    assert pack(folder).archive == before


def test_a_repository_of_somebody_else_is_listed_too(folder: Path) -> None:
    if os.geteuid():
        pytest.skip("only root gives files away")
    (folder / ".gitignore").write_text("build\n")
    (folder / "build").write_text("x")
    git(folder, "add", "-f", "build")
    for path in (folder, folder / ".git"):
        os.chown(path, 65534, 65534)
    assert "build" in listed(folder)


def test_pointers_of_lfs_and_what_is_no_file_are_named(folder: Path) -> None:
    (folder / "weights.bin").write_text(POINTER)
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket"))
        assert "weights.bin" in listed(folder)
        assert "1 file is a pointer of Git LFS or git-annex, not the content: weights.bin" in said(folder)
        assert "2 (pipe, socket)" in said(folder)


def test_older_pointers_and_those_of_git_annex_are_named_too(folder: Path) -> None:
    (folder / "old.bin").write_text("version http://git-media.io/v/2\noid sha256:4d\nsize 1\n")
    (folder / "older.bin").write_text("version https://hawser.github.com/spec/v1\r\noid sha256:4d\r\nsize 1\r\n")
    (folder / "unlocked.bin").write_text("/annex/objects/SHA256E-s5--4d7a.bin\n")
    (folder / "annexed.bin").symlink_to(".git/annex/objects/Xx/9z/SHA256E-s5--4d7a.bin/SHA256E-s5--4d7a.bin")
    (folder / "annexed.py").write_text("# a note on /annex/objects/\n")
    assert "4 files are pointers of Git LFS or git-annex" in said(folder)
    assert "annexed.py" not in said(folder)


def test_what_a_sparse_checkout_leaves_out_is_not_called_deleted(folder: Path) -> None:
    for name in ("a/x.py", "b/y.py"):
        (folder / name).parent.mkdir()
        (folder / name).write_text("")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "sparse-checkout", "set", "a")
    assert set(listed(folder)) == {"a/x.py", "train.py"}
    assert "sparse-checkout disable` fetches all): 1 (b/y.py)" in said(folder)
    assert "deleted" not in said(folder)


@pytest.mark.parametrize(
    "config", ["[core\n", "[core]\nrepositoryformatversion=1\n[extensions]\nunheard=1\n", "\0", "[core]\nbare=maybe\n"]
)
def test_a_repository_that_git_cannot_read_is_not_taken_for_none(folder: Path, config: str) -> None:
    (folder / ".git" / "config").write_text(config)
    with pytest.raises(ClientError, match=r"git cannot read the repository of .*code: .+; nothing was uploaded"):
        pack(folder)


def test_a_git_file_that_leads_nowhere_makes_a_plain_directory(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / ".git").write_text("gitdir: /nonexistent/modules/sub\n")
    (folder / "sub" / "a.py").write_text("")
    assert set(listed(folder)) == {"sub/a.py", "train.py"}
    assert set(listed(folder / "sub")) == {"a.py"}


def test_a_bare_repository_has_no_code(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--bare", "bare.git")
    with pytest.raises(ClientError, match=r"bare\.git is a bare repository"):
        pack(tmp_path / "bare.git")


@pytest.mark.parametrize("commands", [[], [("add", "."), ("rm", "--quiet", "-f", "train.py")]])
def test_a_directory_without_code_is_refused_before_it_is_uploaded(
    folder: Path, commands: list[tuple[str, ...]]
) -> None:
    for command in commands:
        git(folder, *command)
    (folder / "train.py").unlink(missing_ok=True)
    with pytest.raises(ClientError, match="there is no code in"):
        pack(folder)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32"])
def test_a_list_that_git_cannot_read_uploads_nothing(folder: Path, encoding: str) -> None:
    (folder / "secret.txt").write_text("")
    (folder / ".evenkeelignore").write_bytes("secret.txt\n".encode(encoding))
    with pytest.raises(ClientError, match=r"\.evenkeelignore is not UTF-8 text"):
        pack(folder)
    (folder / ".evenkeelignore").write_bytes(b"\xef\xbb\xbfsecret.txt\r\n")
    assert "secret.txt" not in listed(folder)


def test_an_absolute_link_by_way_of_another_link_stays_inside(folder: Path, tmp_path: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "a.py").write_text("")
    (tmp_path / "alias").symlink_to(folder)
    (folder / "by-alias").symlink_to(tmp_path / "alias" / "real")
    (folder / "out").symlink_to(tmp_path / "alias" / ".." / "real")
    assert listed(folder)["by-alias"] == "real"
    assert "1 (out)" in said(folder)


def test_a_tracked_file_that_is_deleted_or_behind_a_link_is_named(folder: Path, tmp_path: Path) -> None:
    (folder / "gone.py").write_text("")
    (folder / "moved").mkdir()
    (folder / "moved" / "a.py").write_text("")
    git(folder, "add", ".")
    (folder / "gone.py").unlink()
    (folder / "moved").rename(tmp_path / "elsewhere")
    (folder / "moved").symlink_to(tmp_path / "elsewhere")
    assert set(listed(folder)) == {"train.py"}
    assert "2 (gone.py, moved/a.py)" in said(folder)


def test_odd_names_go_along(folder: Path) -> None:
    odd = [b"new\nline.py", "\u2603.py".encode(), b"caf\xe9.py", b"--option", b"a b\\c"]
    for name in odd:
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("")
    assert {os.fsencode(name) for name in listed(folder)} == {*odd, b"train.py"}


@pytest.mark.parametrize("place", ["secret.py", "closed/a.py"])
def test_what_cannot_be_read_stops_with_its_name(folder: Path, place: str) -> None:
    target = folder / place
    target.parent.mkdir(exist_ok=True)
    target.write_text("")
    (target if target.parent == folder else target.parent).chmod(0)
    folder.parent.chmod(0o755)
    script = f"""
import os, sys
from pathlib import Path
from evenkeel.cli.bundle import pack
from evenkeel.client import ClientError
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
    os.environ["HOME"] = "/nonexistent"
try:
    pack(Path({str(folder)!r}))
except ClientError as error:
    print(error)
"""
    for parent in folder.parents:
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    assert place.partition("/")[0] in answer.stdout
    assert "Permission denied; nothing was uploaded" in answer.stdout


def test_a_file_that_changes_meanwhile_stops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def growing(self: tarfile.TarFile, entry: tarfile.TarInfo, source: io.BufferedReader) -> None:
        (folder / "train.py").write_text("print(1)\nprint(2)\n")

    monkeypatch.setattr(tarfile.TarFile, "addfile", growing)
    with pytest.raises(ClientError, match=r"train\.py changed while it was read"):
        pack(folder)


def test_a_file_that_shrinks_meanwhile_stops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "train.py").write_text("x" * 100_000)
    add = tarfile.TarFile.addfile

    def cut(self: tarfile.TarFile, entry: tarfile.TarInfo, source: io.BufferedReader) -> None:
        (folder / "train.py").write_text("")
        add(self, entry, source)

    monkeypatch.setattr(tarfile.TarFile, "addfile", cut)
    with pytest.raises(ClientError, match="changed while it was read"):
        pack(folder)


def test_without_git_it_says_what_git_is_for(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClientError, match="git is not installed"):
        pack(folder)


def test_a_directory_without_a_repository_needs_none(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.py").write_text("")
    (tmp_path / "plain" / "b.pt").write_text("")
    (tmp_path / "plain" / ".gitignore").write_text("*.pt\n")
    assert set(listed(tmp_path / "plain")) == {".gitignore", "a.py"}
