import { defineConfig } from "vite";

// The pages are part of the Python package. `npm run dev` serves them with reloading beside a console on 8080.
export default defineConfig({
  build: {
    outDir: "../src/headrace/console/assets",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0, // the content security policy has no data: scripts or styles
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  server: {
    proxy: { "/api": { target: "http://127.0.0.1:8080", headers: { host: "127.0.0.1:8080" } } },
  },
});
