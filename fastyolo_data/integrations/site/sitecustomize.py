"""Runs when a Python starts whose PYTHONPATH holds this folder (integrations/environment.py puts it there).

Installs the import hook, then runs the user's own sitecustomize, as if this one were not there. Any Python can come
across this file, old ones too, so its syntax is plain; it must not fail and must not cost time.
"""

import os
import sys

__all__ = []


def _start_hook(root):
    """Import this very copy of the package, wherever it lies, and leave sys.path as it is."""
    sys.path.insert(0, root)
    try:
        from fastyolo_data.integrations import hook

        hook.install(from_environment=True)
    except ImportError as e:
        sys.stderr.write("fastyolo_data: not active in this process: %s\n" % e)  # noqa: UP031
    finally:
        sys.path.remove(root)


def _run_users_own(here):
    """Run the next sitecustomize on sys.path; `site` reports its errors as usual."""
    sys.path[:] = [p for p in sys.path if os.path.abspath(p) != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as e:
        if getattr(e, "name", "sitecustomize") != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


_here = os.path.dirname(os.path.abspath(__file__))
if os.environ.get("FASTYOLO_PATCH") and sys.version_info >= (3, 10):
    _start_hook(os.path.dirname(os.path.dirname(os.path.dirname(_here))))
_run_users_own(_here)
