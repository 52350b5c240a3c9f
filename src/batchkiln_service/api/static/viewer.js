"use strict";

// The API refuses requests with an Origin header, which browsers add. The service relays those of this page without it.
const api = `${location.origin}/api/v1/`;
const relay = `${location.origin}/docs/try/api/v1/`;

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
});
