import type { Plugin } from "vite";
import { WebSocketServer, type WebSocket } from "ws";
import { handle, seqs, streamState } from "./routes";
import { advance } from "./world";

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
const TICK_MS = 700;

function diff(before: Json | undefined, after: Json): Json | undefined {
  const plain = (value: Json | undefined): value is { [key: string]: Json } => typeof value === "object" && value !== null && !Array.isArray(value);
  if (!plain(before) || !plain(after)) return JSON.stringify(before) === JSON.stringify(after) ? undefined : after;
  const patch: { [key: string]: Json } = {};
  for (const key of Object.keys(before)) if (!(key in after)) patch[key] = null;
  for (const [key, value] of Object.entries(after)) {
    const change = diff(before[key], value);
    if (change !== undefined) patch[key] = change;
  }
  return Object.keys(patch).length > 0 ? patch : undefined;
}

/** Serves an invented cluster under /api and /ws while developing. No part of a build. */
export function mockCluster(): Plugin {
  const watchers = new Map<string, Set<WebSocket>>();
  const last = new Map<string, Json>();
  const wire = (value: unknown) => JSON.parse(JSON.stringify(value)) as Json;
  const tick = () => {
    const now = Date.now();
    advance(now, TICK_MS);
    for (const [stream, sockets] of watchers) {
      const state = wire(streamState(stream, now));
      const patch = diff(last.get(stream), state);
      last.set(stream, state);
      if (patch === undefined) continue;
      const seq = (seqs.get(stream) ?? 0) + 1;
      seqs.set(stream, seq);
      for (const socket of sockets) socket.send(JSON.stringify({ type: "diff", stream, seq, at: new Date(now).toISOString(), patch }));
    }
  };
  return {
    name: "mock-cluster",
    configureServer(server) {
      setInterval(tick, TICK_MS).unref();
      server.middlewares.use((request, response, next) => {
        if (request.url?.startsWith("/api/")) void handle(request, response);
        else next();
      });
      const sockets = new WebSocketServer({ noServer: true });
      server.httpServer?.on("upgrade", (request, socket, head) => {
        if (request.url !== "/ws/v1/live") return;
        sockets.handleUpgrade(request, socket, head, (client) => {
          client.on("message", (raw) => {
            const { subscribe } = JSON.parse(String(raw)) as { subscribe: string[] };
            for (const stream of subscribe) {
              const set = watchers.get(stream) ?? new Set();
              watchers.set(stream, set.add(client));
              last.set(stream, last.get(stream) ?? wire(streamState(stream, Date.now())));
              client.send(JSON.stringify({ type: "subscribed", stream, seq: seqs.get(stream) ?? 0 }));
            }
          });
          client.on("close", () => watchers.forEach((set) => set.delete(client)));
        });
      });
    },
  };
}
