"""The manifest that `batchkiln init` writes."""

from typing import Final

EXAMPLE: Final = """\
# A first manifest. `batchkiln plan THIS_FILE` says what it would cost, `batchkiln run THIS_FILE` makes the pictures.
# Without an account it runs on the local service that comes with batchkiln, which costs nothing.
version: 1
job: first-job                    # unique in the queue; letters, digits, '-', '_', '.'
description: Animals in two styles

budget:
  credits: 500                    # never reserve more than this for the job
  # credits_per_day: 200          # nor more than this on one UTC day

defaults:                         # any field of an item but id and prompt
  model: epsilon-2
  mode: text-to-image             # or text-to-video, image-to-image, image-to-video
  parameters: {resolution: 1024x1024, aspect_ratio: "1:1"}
  max_cost_credits: 20            # refuse to pay more for one item
  attempts: 3                     # tries in all, where the service says that a generation failed

output:
  dir: out                        # relative to the working directory
  filename: "{job}/{item}.{ext}"  # fields: job, item, index, output, model, ext, any variable or metadata key

items:
  # One prompt, written out. The id names the file, and tells the item again when the manifest is applied once more.
  - id: red-fox
    prompt: A red fox in fresh snow, morning light
    metadata: {species: vulpes-vulpes}

  # One item for each combination of the values.
  - matrix: {animal: [fox, owl], style: [watercolor, ink]}
    id: "{{ animal }}-{{ style }}"
    prompt: "{{ animal }}, {{ style }}"
    metadata: [animal, style]

  # One item for each row of a file: csv, tsv, jsonl or txt, or .gz of these; columns are the variables.
  # - from: prompts.csv
  #   prompt: "{{ prompt }}, {{ style }}"
  #   id: "row-{{ row }}"
  #   where: style != 'ink'
  #   limit: 100
"""
