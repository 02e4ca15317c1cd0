"""Send requests in batches through the batch APIs of OpenAI and Anthropic, at half the price."""

_BATCH = "agentv.extensions.batch"

ROWS = {
    "agentv.services": {
        "batch-queue": f"{_BATCH}.batch_queue:BatchQueueWrapper",
        "openai-batches": f"{_BATCH}.vendor_batches:OpenAIBatchApi",
        "anthropic-batches": f"{_BATCH}.vendor_batches:AnthropicBatchApi",
    },
}
