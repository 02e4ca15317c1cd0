"""Write small spreadsheets, cell by cell."""

import zipfile

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_OPEN = "urn:oasis:names:tc:opendocument:xmlns"


def write_sheet(target, rows):
    """Write a spreadsheet of Excel with rows of texts."""
    write_xlsx(target, "".join("<row>" + "".join(map(cell_of, row)) + "</row>" for row in rows))


def cell_of(text, place=""):
    """Return a cell with a text, at a place such as `B2` or after the cell before it."""
    at = f' r="{place}"' if place else ""
    return f'<c{at} t="inlineStr"><is><t>{text}</t></is></c>'


def write_xlsx(target, rows):
    """Write a spreadsheet of Excel with rows in XML."""
    files = {
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
        'ContentType="application/xml"/></Types>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r" '
        f'Type="{_OFFICE}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><sheets><sheet name="s" sheetId="1" '
        'r:id="r"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships"><Relationship Id="r" '
        f'Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
        "xl/worksheets/sheet1.xml": f'<worksheet xmlns="{_MAIN}"><sheetData>{rows}</sheetData></worksheet>',
    }
    _write(target, files)


def write_ods(target, rows):
    """Write a spreadsheet of OpenDocument with rows in XML."""
    content = f'<office:document-content xmlns:office="{_OPEN}:office:1.0" xmlns:table="{_OPEN}:table:1.0" '
    content += f'xmlns:text="{_OPEN}:text:1.0"><office:body><office:spreadsheet><table:table table:name="s">'
    content += f"{rows}</table:table></office:spreadsheet></office:body></office:document-content>"
    kind = "application/vnd.oasis.opendocument.spreadsheet"
    manifest = f'<manifest:manifest xmlns:manifest="{_OPEN}:manifest:1.0"><manifest:file-entry manifest:full-path="/" '
    manifest += f'manifest:media-type="{kind}"/></manifest:manifest>'
    _write(target, {"mimetype": kind, "META-INF/manifest.xml": manifest, "content.xml": content})


def _write(target, files):
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
