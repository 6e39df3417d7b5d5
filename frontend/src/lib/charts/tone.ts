import { TOKENS, type Scheme } from "../../theme/tokens";

type Pattern = "solid" | "diagonal" | "dots" | "upright" | "back" | "cross";

/** Two greys, each as percent of ink-2 over the surface; in a solid one the second is not seen. */
export interface Fill {
  pattern: Pattern;
  ink: number;
  ground: number;
}

const SOLID = [100, 64, 40, 22];
const PATTERNS = ["diagonal", "dots", "upright", "back", "cross"] as const;
const PAIRS = [[100, 0], [0, 62], [100, 36]] as const;

/** How many can be told apart. */
export const FILLS = SOLID.length + PATTERNS.length * PAIRS.length;

/** Fills for data that is no job's: greys first, strongest first, then patterns of two greys. */
export function fillOf(i: number): Fill {
  const solid = SOLID[i % FILLS];
  if (solid !== undefined) return { pattern: "solid", ink: solid, ground: solid };
  const at = (i % FILLS) - SOLID.length;
  const [ink, ground] = PAIRS[Math.floor(at / PATTERNS.length)] ?? PAIRS[0];
  return { pattern: PATTERNS[at % PATTERNS.length] ?? "diagonal", ink, ground };
}

const mixed = (part: number) => `color-mix(in srgb, var(--ink-2) ${part}%, var(--surface))`;

/** The background of an element. */
export function tone(i: number): string {
  const fill = fillOf(i);
  const [ink, ground] = [mixed(fill.ink), mixed(fill.ground)];
  const stripes = (angle: number, between: string) => `repeating-linear-gradient(${angle}deg, ${ink} 0 1.5px, ${between} 1.5px 4px)`;
  switch (fill.pattern) {
    case "solid": return ink;
    case "diagonal": return stripes(135, ground);
    case "back": return stripes(45, ground);
    case "upright": return stripes(90, ground);
    case "dots": return `radial-gradient(circle at center, ${ink} 1.1px, ${ground} 1.5px) 0 0/4px 4px`;
    case "cross": return `${stripes(135, "transparent")}, ${stripes(45, ground)}`;
  }
}

/** One grey, for a canvas. */
export function toneHex(part: number, scheme: Scheme): string {
  const [ink, surface] = [TOKENS[scheme]["ink-2"] ?? "#48515d", TOKENS[scheme].surface ?? "#ffffff"];
  const share = part / 100;
  const parts = [1, 3, 5].map((at) => Math.round(parseInt(ink.slice(at, at + 2), 16) * share + parseInt(surface.slice(at, at + 2), 16) * (1 - share)));
  return `#${parts.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

const TILE_PX = 6;

/** Where a tile of a canvas is inked, in pixels of the tile. */
function draw(pattern: Pattern, ctx: CanvasRenderingContext2D): void {
  const slants = (from: number, to: number) => {
    for (const shift of [-TILE_PX, 0, TILE_PX]) {
      ctx.moveTo(from + shift, 0);
      ctx.lineTo(to + shift, TILE_PX);
    }
  };
  ctx.beginPath();
  if (pattern === "diagonal" || pattern === "cross") slants(TILE_PX, 0);
  if (pattern === "back" || pattern === "cross") slants(0, TILE_PX);
  if (pattern === "upright") ctx.rect(0, 0, 2, TILE_PX);
  if (pattern === "dots") ctx.arc(TILE_PX / 2, TILE_PX / 2, 1.6, 0, 2 * Math.PI);
  if (pattern === "upright" || pattern === "dots") ctx.fill();
  else ctx.stroke();
}

/** The same as `tone` for a canvas, in its device's pixels. */
export function canvasTone(i: number, scheme: Scheme): string | CanvasPattern {
  const fill = fillOf(i);
  const ink = toneHex(fill.ink, scheme);
  if (fill.pattern === "solid") return ink;
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(TILE_PX * devicePixelRatio);
  const ctx = tile.getContext("2d");
  if (!ctx) return ink;
  ctx.scale(tile.width / TILE_PX, tile.width / TILE_PX);
  ctx.fillStyle = toneHex(fill.ground, scheme);
  ctx.fillRect(0, 0, TILE_PX, TILE_PX);
  ctx.fillStyle = ctx.strokeStyle = ink;
  ctx.lineWidth = 1.6;
  draw(fill.pattern, ctx);
  return ctx.createPattern(tile, "repeat") ?? ink;
}
