"""Write fastyolo_data/integrations/fingerprints.json from checkouts of YOLOv5, YOLOv7, YOLOv9 and their PyPI packages.

    python tests/integrations/make_fingerprints.py --yolov5 REPO --yolov7 REPO --yolov9 REPO \\
        --package yolov5 7.0.14 FOLDER --package yolov9 0.0.4 FOLDER

REPO: a git repository with its history. FOLDER: holds the package's `utils`. Hashes and function names are written,
no code.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from fastyolo_data.integrations.fingerprints import fingerprint_file

OUT = Path(__file__).parents[2] / "fastyolo_data" / "integrations" / "fingerprints.json"
FILES = (
    "utils/datasets.py",
    "utils/dataloaders.py",
    "utils/augmentations.py",
    "utils/general.py",
    "utils/metrics.py",
    "utils/segment/dataloaders.py",
    "utils/segment/augmentations.py",
    "utils/segment/general.py",
)
# (start of the history that counts, end). YOLOv5 6.0 differs in its box filter (ratio below 20) and does not shuffle.
HISTORY = {"yolov5": ("v6.1", "HEAD"), "yolov7": (None, "main"), "yolov9": (None, "main")}


def git(repo: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(repo), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@functools.cache
def blob_fingerprints(repo: Path, blob: str) -> dict[str, str]:
    return fingerprint_file(git(repo, "cat-file", "blob", blob))


def commit_fingerprints(repo: Path, commit: str) -> Iterator[tuple[str, str]]:
    for line in git(repo, "ls-tree", "-r", commit, "--", *FILES).splitlines():
        yield from blob_fingerprints(repo, line.split()[2]).items()


def states(repo: Path, kind: str) -> Iterator[tuple[str, str]]:
    """Yield (version, commit): tags by their name, the newest commit by its day, others as "6.1 to 6.2"."""
    start, end = HISTORY[kind]
    tags = {
        git(repo, "rev-parse", f"{t}^{{commit}}").strip(): t.lstrip("v")
        for t in git(repo, "tag", "--merged", end).split()
    }
    span = [end] if start is None else [f"{start}..{end}"]
    commits = git(repo, "rev-list", "--first-parent", "--reverse", *span).split()
    if start is not None:
        commits.insert(0, git(repo, "rev-parse", f"{start}^{{commit}}").strip())
    names = {**tags, commits[-1]: git(repo, "show", "-s", "--format=%cs", commits[-1]).strip()}
    last, waiting = "", []
    for commit in commits:
        waiting.append(commit)
        if commit in names:
            yield from ((f"{last} to {names[commit]}" if last else f"before {names[commit]}", c) for c in waiting[:-1])
            yield names[commit], commit
            last, waiting = names[commit], []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind in HISTORY:
        parser.add_argument(f"--{kind}", type=Path, required=True)
    parser.add_argument("--package", nargs=3, action="append", default=[], metavar=("KIND", "VERSION", "FOLDER"))
    args = parser.parse_args()
    table = {}
    for kind in HISTORY:
        seen: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        versions: list[str] = [f"PyPI {v}" for k, v, _ in args.package if k == kind]
        for k, version, folder in args.package:
            if k == kind:
                for path in (Path(folder) / f for f in FILES):
                    if path.is_file():
                        for name, digest in fingerprint_file(path.read_text(encoding="utf-8")).items():
                            seen[name][digest].add(f"PyPI {version}")
        for version, commit in states(getattr(args, kind), kind):
            versions += [] if version in versions else [version]
            for name, digest in commit_fingerprints(getattr(args, kind), commit):
                seen[name][digest].add(version)
        functions = {
            name: {d: sorted(map(versions.index, where)) for d, where in sorted(digests.items())}
            for name, digests in sorted(seen.items())
        }
        table[kind] = {"versions": versions, "functions": functions}
    lines = []
    for kind, entry in table.items():
        rows = ",\n".join(f"   {json.dumps(n)}: {json.dumps(d)}" for n, d in entry["functions"].items())
        lines.append(
            f' "{kind}": {{\n  "versions": {json.dumps(entry["versions"])},\n  "functions": {{\n{rows}\n  }}\n }}'
        )
    OUT.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
