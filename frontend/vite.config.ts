import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { mockCluster } from "./dev/plugin";

const PORTAL = process.env.EVENKEEL_PORTAL ?? "http://127.0.0.1:8800";
const mocked = process.env.EVENKEEL_MOCK === "1";

export default defineConfig(({ command }) => ({
  base: command === "build" ? "/static/" : "/", // Django serves the build under STATIC_URL
  plugins: [react(), ...(command === "serve" && mocked ? [mockCluster()] : [])],
  build: { outDir: "dist", sourcemap: false, chunkSizeWarningLimit: 600 },
  server: {
    host: "127.0.0.1",
    port: 5173,
    ...(mocked
      ? {}
      : {
          proxy: {
            "/api": { target: PORTAL },
            "/ws": { target: PORTAL, ws: true },
          },
        }),
  },
  test: { environment: "node", include: ["src/**/*.test.{ts,tsx}"] },
}));
