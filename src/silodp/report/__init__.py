"""A report for people on runs, sweeps and ledgers, in one self-contained HTML file."""

from silodp.report.write import report_page, write_report

__all__ = ["report_page", "write_report"]
