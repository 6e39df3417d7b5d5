/** Patterns of the timelines; `lt` and `dk` for colours that carry white or black text. */
export function Hatches() {
  return (
    <defs>
      <pattern id="tl-moving" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="2.8" height="5" fill="var(--surface)" />
      </pattern>
      {(["lt", "dk"] as const).map((tone) => (
        <g key={tone}>
          <pattern id={`tl-protected-${tone}`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
            <rect width="1.3" height="6" fill={tone === "lt" ? "var(--hatch)" : "var(--hatch-dk)"} />
          </pattern>
          <pattern id={`tl-dots-${tone}`} width="5" height="5" patternUnits="userSpaceOnUse">
            <circle cx="2.5" cy="2.5" r=".7" fill={tone === "lt" ? "var(--dots)" : "var(--dots-dk)"} />
          </pattern>
        </g>
      ))}
    </defs>
  );
}
