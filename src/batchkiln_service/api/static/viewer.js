"use strict";

// The API refuses requests with an Origin header, which browsers add. The service relays those of this page without it.
const api = `${location.origin}/api/v1/`;
const relay = `${location.origin}/docs/try/api/v1/`;

// The description's example would be the same key for each visitor, and a used key with another body is refused.
function withFreshKeys(text) {
  const description = JSON.parse(text);
  const operations = Object.values(description.paths).flatMap((path) => Object.values(path));
  const parameters = operations.flatMap((operation) => operation.parameters ?? []);
  for (const parameter of parameters.filter((each) => each.name === "Idempotency-Key")) {
    const random = crypto.getRandomValues(new Uint8Array(8));
    parameter.example = `try-${Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }
  return JSON.stringify(description);
}

SwaggerUIBundle({
  url: "/api/v1/openapi.json",
  dom_id: "#viewer",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: -1,
  validatorUrl: "none",
  persistAuthorization: true,
  showMutatedRequest: false,
  requestInterceptor: (request) => {
    if (!request.loadSpec && request.url.startsWith(api)) {
      request.url = relay + request.url.slice(api.length);
    }
    return request;
  },
  responseInterceptor: (response) => {
    if (response.ok && response.url.endsWith("/api/v1/openapi.json")) {
      response.text = withFreshKeys(response.text);
    }
    return response;
  },
});
