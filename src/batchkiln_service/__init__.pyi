# The public names; `__init__.py` imports one on first use.

from .clock import ManualClock as ManualClock, ServiceClock as ServiceClock
from .commands.host_program import CommandError as CommandError, HostProgram as HostProgram, Problem as Problem
from .commands.serve import serve_commands as serve_commands
from .config import (
    AccountConfig as AccountConfig,
    KeyConfig as KeyConfig,
    Limits as Limits,
    ServiceConfig as ServiceConfig,
)
from .db.account_admin import open_account_admin as open_account_admin
from .db.database import DatabaseError as DatabaseError
from .db.modelled_tables import ModelledGeneration as ModelledGeneration
from .db.report import FaultCount as FaultCount, Report as Report
from .db.request_log import LoggedRequest as LoggedRequest, logged_requests as logged_requests
from .errors import ApiError as ApiError, StateFolderInUseError as StateFolderInUseError
from .faults.fault_rules import Endpoint as Endpoint, FaultRule as FaultRule, Misbehaviour as Misbehaviour
from .modelled_service import ModelledService as ModelledService, NotModelledError as NotModelledError
from .rules.catalog import Model as Model, load_catalog as load_catalog
from .rules.validation import check_request as check_request
from .server import LocalService as LocalService
from .testing import RunningService as RunningService, running_service as running_service
