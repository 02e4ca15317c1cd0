"""Opens a dataset with its settings: those around its rows, or those in the sidecar of a format that has one."""

from __future__ import annotations

from typing import Any

import msgspec

from agentv.datasets.case.keys import CASE_LIST_KEYS, is_header
from agentv.datasets.formats.dataset_format import Document
from agentv.datasets.formats.yaml_dataset import parse_yaml_file
from agentv.datasets.formats.yaml_parser import Map
from agentv.datasets.source import SIDECAR_SUFFIXES, Source
from agentv.errors import DatasetWarning, InvalidDatasetError, MissingSidecarWarning
from agentv.settings.diagnostics import type_word


def open_document(source: Source) -> Document:
    """Open a dataset, with the settings in its sidecar if the format has one."""
    document = source.format.open(source)
    if not source.format.has_sidecar:
        return document
    path = source.sidecar
    if path is None:
        if document.is_agentmark:
            return document
        missing = source.base + SIDECAR_SUFFIXES[0]
        message = f"Sidecar metadata file not found: {missing}\n  Using defaults: target=default, evaluator=llm_judge"
        return msgspec.structs.replace(document, warnings=(MissingSidecarWarning(message, path=missing),))
    data = parse_yaml_file(path)
    header: dict[str, Any] = data if isinstance(data, Map) else {}
    message = ""
    if data is not None and not isinstance(data, Map):
        what = f"Expected a mapping of settings, got {type_word(data)}"
        raise InvalidDatasetError(f"Invalid sidecar: {path}", what, path=path, line=1)
    if isinstance(data, Map) and any(key in data for key in CASE_LIST_KEYS):
        message = f"{path}: its list of cases is not read, only its settings: the cases are in {source.path}"
        header = data.without(CASE_LIST_KEYS)
    elif not is_header(header):
        message = f"{path} has none of the keys of a sidecar, and is taken as one for its name"
        header = {}  # of another tool's file one warning is enough
    warnings = (DatasetWarning(message, path=path),) if message else ()
    return msgspec.structs.replace(document, header=header, header_path=path, warnings=warnings)
