"""Pages of the site that lie outside docs/, where GitHub looks for them (a hook of MkDocs)."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

OUTSIDE = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Any, config: Any) -> Any:
    """Adds them to the files of the site."""
    root = Path(config.config_file_path).parent
    for page, name in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(root / name)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes links to them, and from them into docs/, what they are within the site."""
    is_outside = page.file.src_uri in OUTSIDE
    if is_outside:
        markdown = re.sub(r"\]\(docs/", "](", markdown)
    for name, path in OUTSIDE.items():
        markdown = markdown.replace(f"]({path if is_outside else f'../{path}'}", f"]({name}")
    return markdown
