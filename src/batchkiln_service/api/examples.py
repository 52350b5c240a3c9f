"""Examples for the interface description: requests that would be accepted, and what is answered."""

from collections.abc import Mapping
from typing import Final

from batchkiln_service.rules.catalog import Model
from batchkiln_service.rules.replies import (
    EXAMPLE_GENERATION_ID,
    AssetList,
    Balance,
    Cost,
    GenerationError,
    GenerationRecord,
    ModelList,
    OutputLink,
    Quote,
    ReadyAsset,
    Reply,
    UploadList,
    UploadTicket,
    entry_of,
)
from batchkiln_service.rules.wire import EXAMPLE_ASSET_ID, EXAMPLE_ASSET_URL

Example = dict[str, object]
EXAMPLE_KEY: Final = "field-guide-red-fox-0001"
_AT: Final = "2026-09-21T14:00:00.000Z"
_LATER: Final = "2026-09-21T14:15:00.000Z"
_STORAGE: Final = "https://service.invalid/storage"
_FOX: Final = "A red fox in fresh snow, morning light"


def request_examples(name: str, catalog: Mapping[str, Model]) -> dict[str, Example]:
    """Return examples of a request by the name of its schema; one for each model where it is a generation."""
    match name:
        case "UploadRequest":
            body: Example = {"files": [{"name": "owl.png", "type": "image/png", "size": 204_800}]}
            return {"one image": {"value": body}}
        case "CompletionRequest":
            return {"one image": {"value": {"asset_ids": [EXAMPLE_ASSET_ID]}}}
        case _:
            kinds = {"VideoRequest": ("video",), "ImageRequest": ("image",)}.get(name, ("video", "image"))
            return {
                f"{model.id}, {mode}": {"value": _body(model, mode)}
                for model in catalog.values()
                if model.kind in kinds
                for mode in model.modes
            }


def reply_examples(kind: type[Reply], catalog: Mapping[str, Model]) -> dict[str, Example]:
    """Return examples of a reply."""
    replies = _replies(next(iter(catalog.values())))[kind]
    return {name: {"value": reply.model_dump(mode="json")} for name, reply in replies.items()}


def _body(model: Model, mode: str) -> Example:
    resolution = model.resolutions[0]
    parameters: Example = {"resolution": resolution, "aspect_ratio": model.ratios_of(resolution)[0]}
    if model.durations_seconds:
        parameters["duration_seconds"] = model.durations_seconds[0]
    body: Example = {"model": model.id, "mode": mode, "prompt": _FOX, "parameters": parameters}
    if mode.startswith("image-to-"):
        body["inputs"] = [{"type": "image", "url": EXAMPLE_ASSET_URL}]
        if image_mode := model.image_mode_for(1):
            parameters["image_mode"] = image_mode
    return body | {"max_cost_credits": model.highest_price_credits}


def _replies(model: Model) -> dict[type[Reply], dict[str, Reply]]:
    upload_url = f"{_STORAGE}/uploads/{EXAMPLE_ASSET_ID}?expires=1790000300000&nonce=0&signature=0"
    headers = {"Content-Type": "image/png", "Content-Length": "204800", "X-Upload-Asset": EXAMPLE_ASSET_ID}
    return {
        ModelList: {"one of the models": ModelList(models=[entry_of(model)])},
        Balance: {"balance": Balance(balance=1200)},
        Quote: {"price": Quote(cost_credits=50)},
        GenerationRecord: _records(),
        UploadList: {
            "one image": UploadList(
                uploads=[
                    UploadTicket(
                        asset_id=EXAMPLE_ASSET_ID,
                        name="owl.png",
                        upload_url=upload_url,
                        upload_headers=headers,
                        expires_at=_LATER,
                    )
                ]
            )
        },
        AssetList: {
            "one image": AssetList(
                assets=[
                    ReadyAsset(
                        asset_id=EXAMPLE_ASSET_ID,
                        status="ready",
                        url=EXAMPLE_ASSET_URL,
                        type="image/png",
                        size=204_800,
                        width=640,
                        height=480,
                        expires_at=_LATER,
                    )
                ]
            )
        },
    }


def _records() -> dict[str, Reply]:
    link = f"{_STORAGE}/outputs/{EXAMPLE_GENERATION_ID}/0.mp4?expires=1790000900000&nonce=0&signature=0"
    accepted = GenerationRecord(
        id=EXAMPLE_GENERATION_ID,
        model="alpha-2.5-lite",
        status="pending",
        created_at=_AT,
        credits=Cost(cost=50),
        outputs=[],
        error=None,
    )
    failure = GenerationError(code="generation_failed", message="The generation failed; its credits were refunded.")
    done = [OutputLink(type="video", url=link, expires_at=_LATER)]
    return {
        "accepted": accepted,
        "finished": accepted.model_copy(update={"status": "success", "outputs": done}),
        "failed": accepted.model_copy(update={"status": "failed", "error": failure}),
        "no longer retained": accepted.model_copy(update={"status": "expired"}),
    }
