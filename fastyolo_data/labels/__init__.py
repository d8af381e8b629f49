"""Labels room: from what the user names as data to a verified LabelTable, with its own cache.

| File | Job |
|---|---|
| data_yaml.py | yaml, dict, folder, list or image → DataSpec |
| find.py | DataSpec → image files; image file → label file |
| filestat.py | sizes and times of many files |
| rows.py | rules of a task; rows of numbers → columns |
| parse.py | one label text → columns, or an error that locates the fault |
| parse_many.py | many label texts → columns, fast |
| columns.py | labels of many files as flat arrays |
| cache.py | columns ↔ cache file |
| read_files.py | image sizes and labels of many files, in threads |
| scan.py | all of it together: load_labels |
| report.py | what the user is told |
| weights.py | image weights made from labels |
"""

from fastyolo_data.labels.cache import cache_folders
from fastyolo_data.labels.data_yaml import resolve_data
from fastyolo_data.labels.find import IMG_SUFFIXES, find_images, label_path
from fastyolo_data.labels.parse import parse_label
from fastyolo_data.labels.rows import LabelRules
from fastyolo_data.labels.scan import load_labels
from fastyolo_data.labels.weights import class_balanced_weights

__all__ = [
    "IMG_SUFFIXES", "LabelRules", "cache_folders", "class_balanced_weights", "find_images", "label_path", "load_labels",
    "parse_label", "resolve_data",
]  # fmt: skip
