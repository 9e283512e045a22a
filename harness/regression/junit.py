"""Write findings as JUnit XML: one case per plan and metric, regressions as failures, inconclusive ones as skipped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from paretune.harness.regression.findings import Finding, Status, exit_status

__all__ = ["junit"]

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(findings: Sequence[Finding], *, suite: str = "paretune check") -> str:
    """The document. A comparison that compared nothing holds one error, so that no reader takes it for a pass."""
    failures = sum(f.status is Status.REGRESSION for f in findings)
    skipped = sum(f.status is Status.INCONCLUSIVE for f in findings)
    counts = {"tests": str(len(findings) or 1), "failures": str(failures), "skipped": str(skipped)}
    root = ET.Element("testsuites", counts | {"errors": "0" if findings else "1"})
    box = ET.SubElement(root, "testsuite", {"name": suite, **counts, "errors": "0" if findings else "1"})
    properties = ET.SubElement(box, "properties")
    ET.SubElement(properties, "property", {"name": "exit_status", "value": str(exit_status(findings))})
    for finding in findings:
        _case(box, finding)
    if not findings:
        case = ET.SubElement(box, "testcase", {"classname": suite, "name": "comparison"})
        ET.SubElement(case, "error", {"message": "nothing was compared"})
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(box: ET.Element, finding: Finding) -> None:
    case = ET.SubElement(box, "testcase", {"classname": _clean(finding.where), "name": _clean(finding.metric)})
    properties = ET.SubElement(case, "properties")
    values = {"verdict": finding.verdict.value, "baseline": finding.baseline, "head": finding.head}
    for name, value in values.items():
        if value is not None:
            ET.SubElement(properties, "property", {"name": name, "value": _clean(str(value))})
    if finding.status is Status.REGRESSION:
        ET.SubElement(case, "failure", {"message": _clean(finding.text), "type": finding.verdict.value})
    elif finding.status is Status.INCONCLUSIVE:
        ET.SubElement(case, "skipped", {"message": _clean(finding.text)})


def _clean(text: str) -> str:
    """XML 1.0 has no place for most control characters, not even escaped."""
    return _NOT_XML.sub("?", text)
