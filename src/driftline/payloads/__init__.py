"""Functional equivalence of JSON payloads: schemas with rules, comparisons, batches and suggested rules.

>>> from driftline import payloads
>>> plan = payloads.compile({"properties": {"total": {"x-migration-precision": 0.01}}})
>>> plan.compare({"total": 1.00}, {"total": 1.01}).is_match
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftline.core import lazy_exports

if TYPE_CHECKING:
    from driftline.payloads._batch.job import BatchJob as BatchJob, Role as Role, open_source as open_source
    from driftline.payloads._batch.run import (
        Scheduler as Scheduler,
        local_scheduler as local_scheduler,
        run_batch as run_batch,
    )
    from driftline.payloads._batch.totals import (
        BatchTotals as BatchTotals,
        BatchView as BatchView,
        parse_conditions as parse_conditions,
        with_values as with_values,
    )
    from driftline.payloads._batch.view import (
        annotation_lines as annotation_lines,
        find_reports as find_reports,
        junit_xml as junit_xml,
        remedy_of as remedy_of,
        write_for_ci as write_for_ci,
    )
    from driftline.payloads._captures import (
        Masker as Masker,
        PairingOptions as PairingOptions,
        capture_pairs as capture_pairs,
    )
    from driftline.payloads._compare.compare import (
        PayloadPlan as PayloadPlan,
        assert_equivalent as assert_equivalent,
        bundle_of as bundle_of,
        compare as compare,
        compile as compile,  # noqa: A004
        error_response as error_response,
    )
    from driftline.payloads._compare.report import (
        Entry as Entry,
        Report as Report,
        indented as indented,
    )
    from driftline.payloads._lint import Finding as Finding, infer_schema as infer_schema, lint as lint
    from driftline.payloads._rules.path_rules import (
        PathRule as PathRule,
        path_flags as path_flags,
    )
    from driftline.payloads._schema.documents import (
        Bundle as Bundle,
        load_schema as load_schema,
        read_text as read_text,
        yaml_text as yaml_text,
    )
    from driftline.payloads._suggest.evidence import Suggestion as Suggestion, shown as shown
    from driftline.payloads._suggest.suggest import (
        endpoints_of as endpoints_of,
        read_accepted as read_accepted,
        read_pairs as read_pairs,
        suggest as suggest,
        suggest_file as suggest_file,
    )
    from driftline.payloads._suggest.write import (
        Remedy as Remedy,
        RuleEdit as RuleEdit,
        apply_rules as apply_rules,
        count_words as count_words,
        rules_yaml as rules_yaml,
        suggestions_page as suggestions_page,
    )
    from driftline.payloads._values.limits import (
        BYTES_PER_MB as BYTES_PER_MB,
        EngineConfig as EngineConfig,
    )
    from driftline.payloads._values.text import (
        check_members as check_members,
        parse_json as parse_json,
        raw_members as raw_members,
        readable_members as readable_members,
        to_json_bytes as to_json_bytes,
    )
    from driftline.payloads._values.values import spelled as spelled
else:
    __getattr__, __dir__, __all__ = lazy_exports(__name__)
