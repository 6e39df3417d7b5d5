/** How the sliders of the form look. */
export const SLIDER = {
  label: null, size: 4, thumbSize: 16, mb: 22, mx: 8,
  styles: {
    bar: { background: "var(--btn)" }, track: { "--slider-track-bg": "var(--line-2)" }, thumb: { borderColor: "var(--btn)", background: "var(--surface)", borderWidth: 2 },
    mark: { display: "none" }, markLabel: { fontSize: 11, color: "var(--ink-3)", marginTop: 8 },
  },
};
