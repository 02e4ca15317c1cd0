// The reason why the model stopped. An answer from an earlier run may not have it.
const reason = context.providerResponse.finishReason;
if (reason === undefined && context.config.isModel) throw new ReferenceError("the reason why the model stopped is not known");
return typeof reason === "string" && reason.toLowerCase() === context.config.value.toLowerCase();
