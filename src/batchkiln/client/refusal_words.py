"""Recognises the meaning of a refusal by its code, or else by its sentences (Service section 7).

The service documents only one of its codes. A misread refusal costs money or stops a queue, so each pattern requires
both a subject and a statement about it. `tests/unit/client/test_refusal_words.py` lists all known bodies.
"""

import re
from enum import Enum, auto
from typing import Final

from batchkiln.client.error_messages import ErrorTexts


class ErrorMeaning(Enum):
    """The meaning of a refusal."""

    OVER_QUOTE = auto()
    KEY_MISMATCH = auto()
    BUSY = auto()
    NO_CREDITS = auto()
    LIMIT = auto()
    ASSET_GONE = auto()
    CONTENT = auto()  # moderation of this one request
    LOCKED_OUT = auto()  # the account is suspended
    UNCERTAIN = auto()  # a failure behind the API: the request's outcome is unknown


def meaning_by_code(texts: ErrorTexts) -> ErrorMeaning | None:
    """Return the meaning of the codes; None if they are general or unknown."""
    for code in texts.codes:
        for meaning, pattern in _CODES:
            if pattern.search(code):
                return _of_a_day(meaning, texts)
    return None


def meaning_by_prose(texts: ErrorTexts) -> ErrorMeaning | None:
    """Return the meaning of the sentences; None if they match no pattern."""
    for meaning, pattern in _PROSE:
        if pattern.search(texts.prose) and not (meaning in _UNLESS and _UNLESS[meaning].search(texts.prose)):
            return _of_a_day(meaning, texts)
    return None


def _of_a_day(meaning: ErrorMeaning, texts: ErrorTexts) -> ErrorMeaning:
    """Return a limit in place of a lack of credits, if those of a day are meant: the next day restores them."""
    is_restored = meaning is ErrorMeaning.NO_CREDITS and _DAY.search(" ".join((*texts.codes, texts.prose)))
    return ErrorMeaning.LIMIT if is_restored else meaning


def _alternatives(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


_WORK: Final = r"(?:generation|task|job|request|operation|prediction|run|render|video|idempot\w+ key|key)s?"
_OTHER: Final = r"(?:another|previous|first|original|earlier|existing|concurrent|prior|same|initial|identical)"
_GOING_ON: Final = (
    r"(?:in progress|in flight|being processed|still processing|still being processed|already being processed"
    r"|still running|already running|outstanding|under way|underway|not (?:yet )?(?:finished|completed|done)"
    r"|processing|running|executing|still active|already active|currently active|still pending)"
)
_BE: Final = r"(?: (?:is|are|was|were|has|have|be|been|still|already|currently|yet|now))*"
_LACK: Final = r"(?:insufficient|not enough|no|too few|out of|run out of|ran out of|lacks?|lacking|inadequate|zero)"
_MONEY: Final = r"(?:credits?|balance|funds)"
_DAY: Final = re.compile(r"\b(?:daily|today|(?:this|per|a) day|budget)\b")
_GONE: Final = (
    r"(?:expired|unknown|not found|missing|not ready|no longer|do(?:es)? not exist|gone|not available|unavailable"
    r"|deleted|not complete|incomplete|pending|processing|not owned|another account|different account|not uploaded)"
)

_CODES: Final = (
    (
        ErrorMeaning.OVER_QUOTE,
        _alternatives(
            r"^(?!.*(?:daily|budget)).*\bmax cost\b.*\b(?:exceeded|too low|below)\b",
            r"\b(?:exceeds?|over|above) (?:the )?(?:max(?:imum)?(?: \w+)? (?:cost|price)|quote)\b",
            r"\bover ?quote\b|\bquote (?:exceed\w*|changed|expired|mismatch)\b|\bcost exceeds max\b",
            r"\bprice (?:changed|increased|mismatch)\b|\bmax cost(?: credits)? (?:exceeded|too low)\b",
        ),
    ),
    (
        ErrorMeaning.CONTENT,
        _alternatives(
            r"\bmoderat\w+\b|\bcontent (?:policy|filter\w*|violation|blocked|rejected)\b|\bnsfw\b|\bsafety\b",
            r"\bpolicy violation\b|\bprohibited content\b|\bsensitive content\b",
        ),
    ),
    (
        ErrorMeaning.KEY_MISMATCH,
        _alternatives(
            r"\bidempot\w*\b.*\b(?:mismatch|reused?|conflict|different|changed)\b|\bparameter mismatch\b",
            r"\bkey (?:reused?|mismatch)\b|\b(?:payload|body) (?:mismatch|changed|differs)\b",
            # For unchanged bytes: something was created under this key, perhaps because a proxy sent them twice.
            r"^duplicate(?: (?:request|submission|generation|task|job|(?:idempotency )?key))?$",
            r"^(?:(?:request|generation|task|job|idempotency key|key) )?"
            r"already (?:exists|created|submitted|accepted|used)$",
            r"\bidempot\w*\b.*\b(?:already|exists|duplicate|used)\b|\bduplicate idempot\w*\b",
        ),
    ),
    (
        ErrorMeaning.NO_CREDITS,
        _alternatives(
            rf"\b{_LACK} (?:\w+ )?{_MONEY}\b|\b(?:insufficient|not enough) (?:quota|credit)\b",
            rf"\b{_MONEY} (?:\w+ )?(?:insufficient|exhausted|depleted|empty|required|too low|not enough|used up)\b",
            r"\bpayment (?:required|failed|needed|method required|overdue)\b|\bcard declined\b|\barrears\b",
            r"\bsubscription (?:required|expired|inactive|canceled|cancelled|ended|not active|needed|missing|lapsed)\b",
            r"\b(?:no|inactive|missing|needs?|requires?) (?:active )?subscription\b",
            r"\bbilling (?:required|error|inactive|not active|hard limit reached|disabled)\b|\bpurchase required\b",
        ),
    ),
    (
        ErrorMeaning.LIMIT,
        _alternatives(
            r"\brate limit\w*\b|\btoo many requests\b|\bthrottl\w*\b|\bquota exceeded\b|\bresource exhausted\b",
            r"\bdaily\b.*\b(?:limit|budget|quota|exceeded|reached|exhausted)\b|\bbudget (?:exceeded|exhausted)\b",
            r"\brequest limit\b",
        ),
    ),
    (
        ErrorMeaning.ASSET_GONE,
        _alternatives(
            rf"^(?!.*external).*\b(?:assets?|uploads?)\b.*\b{_GONE}\b",
            r"\b(?:expired|unknown|missing|deleted) (?:input |image |source )?(?:assets?|uploads?)\b",
            r"\binput (?:image )?(?:expired|not found|not ready|gone)\b",
        ),
    ),
    (
        ErrorMeaning.BUSY,
        _alternatives(
            r"^(?!.*\b(?:asset|upload|image|file|payment|subscription)\b).*\b(?:in progress|inprogress|in flight)\b",
            r"\bstill (?:processing|running|active|pending)\b|\balready (?:processing|running|active)\b",
            r"\b(?:generation|task|job|account|user|slot) (?:is )?(?:active|busy|running|in use)\b",
            r"\bactive (?:api )?(?:generation|task|job)s?\b|\bkey (?:in use|locked|busy|pending)\b",
            r"\bconcurren\w*\b|\btoo many (?:active|concurrent|running|parallel) \w+\b",
            r"^(?:resource )?busy$|^resource locked$",
            r"\brequest (?:processing|being processed|pending|outstanding|locked)\b|\bparallel\b",
        ),
    ),
    (ErrorMeaning.LOCKED_OUT, _alternatives(r"\b(?:account|user) (?:locked|suspended|disabled|banned|deactivated)\b")),
    (
        ErrorMeaning.UNCERTAIN,
        _alternatives(
            r"^(?:\w+ )?(?:timeout|timed out)$|\binternal (?:server )?error\b|^server error$",
            r"\b(?:upstream|provider|backend|gateway) (?:error|failed|failure|unavailable|timeout)\b",
            r"\b(?:service|temporarily) unavailable\b|\bsubmission (?:uncertain|unconfirmed|unknown)\b",
        ),
    ),
)

_PROSE: Final = (
    (
        ErrorMeaning.KEY_MISMATCH,
        _alternatives(
            r"\b(?:different|changed|modified|other) (?:request )?"
            r"(?:body|payload|parameters?|params|content|bytes|data)\b",
            r"\b(?:body|payload|parameters?|fingerprint)\b[^.;]{0,30}\b(?:mismatch|differs?|differ from"
            r"|(?:does|do|did) ?n[o']t match|has changed|changed)\b",
            r"\bsame parameters they were first used with\b",
            rf"\b{_WORK}\b[^.;,]{{0,40}} already (?:been )?(?:used|created|submitted|accepted|exists?)\b",
            r"\bduplicate (?:request|submission|generation|task|job)\b",
            r"\bidempot\w+[^.;]{0,60}\b(?:already )?(?:been )?(?:used|reused)[^.;]{0,20}"
            r"\b(?:for|with) (?:a |an )?(?:different|another|other)\b",
        ),
    ),
    (
        ErrorMeaning.BUSY,
        _alternatives(
            rf"\b{_WORK}\b[^.;,]{{0,60}}?{_BE} {_GOING_ON}\b",
            rf"\b{_OTHER} (?:\w+ ){{0,3}}{_WORK}{_BE} (?:active|pending|queued|locked)\b",
            rf"\b{_GOING_ON} (?:\w+ ){{0,2}}(?:generation|task|job|request|operation)s?\b",
            r"\bactive (?:api )?(?:generation|task|job)s?\b",
            r"\b(?:generation|task|job)s?(?: is| are)?(?: still| already| currently)? (?:active|queued)\b",
            r"\bconcurren(?:t|cy)\b[^.;]{0,40}"
            r"\b(?:limit|reached|exceeded|generation|task|job|request|use|allowed)\w*\b",
            r"\bonly (?:one|1|a single) (?:\w+ ){0,3}(?:generation|task|job)\b",
            r"\brequest is outstanding\b|\b(?:key|request|resource) is (?:currently )?locked\b",
        ),
    ),
    (
        ErrorMeaning.LOCKED_OUT,
        _alternatives(
            r"\b(?:account|user)\b[^.;]{0,30}\b(?:locked|suspended|disabled|banned|deactivated|terminated)\b"
        ),
    ),
    (
        ErrorMeaning.CONTENT,
        _alternatives(
            r"\bcontent (?:policy|policies|guidelines|filter)\b|\bmoderation\b|\bsafety (?:system|filter|policy)\b",
            r"\b(?:prohibited|disallowed|inappropriate|sensitive|explicit) content\b|\bnsfw\b",
        ),
    ),
    (
        ErrorMeaning.LIMIT,
        _alternatives(
            r"\b(?:daily|per day|today'?s)\b[^.;]{0,60}\b(?:limit|budget|quota|reached|exceeded|exhausted|used up)\b",
            r"\b(?:limit|budget|quota)\b[^.;]{0,40}\b(?:per day|daily|today|per minute)\b",
            r"\brate limit\w*\b|\btoo many requests\b|\brequests? per (?:minute|second|hour)\b",
        ),
    ),
    (
        ErrorMeaning.NO_CREDITS,
        _alternatives(
            rf"\b(?<!max )(?:insufficient|not enough|too few|out of|lacks?|lacking|(?:do|does)(?: not|n't) have"
            rf" (?:enough|sufficient|any)|have no|has no|no more|no)(?: \w+){{0,3}} {_MONEY}\b",
            rf"\b(?:account )?{_MONEY}\b[^.;]{{0,30}}\b(?:insufficient|too low|exhausted|depleted|used up|not enough"
            r"|empty|not sufficient|ran out|run out)\b",
            r"\b(?:requires?|needs?|without|no|have|has|must have)(?: an?| any)?"
            r"(?: active| paid| valid){0,2} subscription\b",
            r"\bsubscription\b[^.;]{0,25}"
            r"\b(?:required|expired|inactive|not active|ended|cancell?ed|lapsed|needed|past due)\b",
            r"\bpayment (?:is |method )?(?:required|failed|overdue|declined)\b",
            r"\b(?:purchase|buy|add|top up)(?: \w+){0,2} credits\b|\btop up your\b|\bpast due\b",
        ),
    ),
    (
        ErrorMeaning.ASSET_GONE,
        _alternatives(
            rf"\b(?:assets?|uploads?)\b.{{0,80}}\b{_GONE}\b",
            r"\b(?:expired|unknown|missing|deleted) (?:input |image |source )?(?:assets?|uploads?)\b",
        ),
    ),
    (
        ErrorMeaning.UNCERTAIN,
        _alternatives(
            rf"\b(?:upstream|provider|backend|gateway|server|{_WORK})\b[^.;]{{0,30}}\btimed out\b",
            r"\binternal (?:server )?error\b|\bsubmission\b[^.;]{0,30}\b(?:not be confirmed|uncertain|unknown)\b",
        ),
    ),
)
# Exceptions: a text that matches these does not have the meaning.
_UNLESS: Final = {
    ErrorMeaning.BUSY: _alternatives(
        r"\b(?:no|not an?|without|inactive) (?:active )?(?:generation|task|job)\b|\b(?:not|isn't) (?:active|running)\b",
        r"\b(?:asset|upload|image|file)s? (?:\w+ ){0,4}(?:processing|in progress|pending|being processed)\b",
        r"\b(?:error|failed|failure|problem)\b[^.;]{0,30}\bprocessing\b|\bcannot be processed\b",
        r"\b(?:access|approval|review|verification|payment)\b[^.;]{0,20}\b(?:pending|in progress|being processed)\b",
        r"\bwhile processing\b|\bprocessing (?:error|of)\b",
    ),
    ErrorMeaning.NO_CREDITS: _alternatives(
        r"\bno (?:\w+ ){0,2}credits (?:were|was|are|is|have been) (?:charged|used|spent|taken)\b"
    ),
    ErrorMeaning.ASSET_GONE: _alternatives(r"\bexternal\b|\bfield required\b|\bunknown field\b"),
    ErrorMeaning.LOCKED_OUT: _alternatives(r"\b(?:asset|upload)s?\b"),
}
