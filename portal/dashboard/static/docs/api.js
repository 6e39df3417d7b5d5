// Whoever is signed in tries requests as themselves: changes carry the CSRF token of the session.
SwaggerUIBundle({
  url: "/api/v1/schema",
  dom_id: "#swagger-ui",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  validatorUrl: null,
  requestInterceptor: function (request) {
    var token = document.cookie.match(/(?:^|; )csrftoken=([^;]+)/);
    if (token && request.method !== "GET") request.headers["X-CSRFToken"] = token[1];
    return request;
  },
});
