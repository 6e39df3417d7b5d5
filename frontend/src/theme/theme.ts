import { createTheme, type CSSVariablesResolver } from "@mantine/core";
import { variables } from "./tokens";

const FONT = '"Inter Variable", Inter, system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const MONO = '"JetBrains Mono Variable", "JetBrains Mono", ui-monospace, SFMono-Regular, Menlo, Consolas, monospace';

/** Mantine's own greys and primary follow the tokens, so its inputs and overlays look like the rest. */
const bridge = {
  "--mantine-color-body": "var(--canvas)",
  "--mantine-color-text": "var(--ink)",
  "--mantine-color-dimmed": "var(--ink-3)",
  "--mantine-color-placeholder": "var(--ink-3)",
  "--mantine-color-default": "var(--surface)",
  "--mantine-color-default-hover": "var(--hover)",
  "--mantine-color-default-color": "var(--ink)",
  "--mantine-color-default-border": "var(--line-2)",
  "--mantine-color-error": "var(--bad)",
  "--mantine-primary-color-filled": "var(--accent)",
  "--mantine-primary-color-filled-hover": "var(--accent)",
  "--mantine-primary-color-light": "var(--accent-soft)",
  "--mantine-primary-color-light-color": "var(--accent)",
  "--mantine-color-anchor": "var(--accent)",
};

export const resolver: CSSVariablesResolver = () => ({
  variables: {},
  light: { ...variables("light"), ...bridge },
  dark: { ...variables("dark"), ...bridge },
});

export const theme = createTheme({
  fontFamily: FONT,
  fontFamilyMonospace: MONO,
  fontSizes: { xs: "11px", sm: "13px", md: "13px", lg: "15px", xl: "20px" },
  lineHeights: { xs: "16px", sm: "20px", md: "20px", lg: "22px", xl: "28px" },
  radius: { xs: "4px", sm: "6px", md: "8px", lg: "8px", xl: "8px" },
  defaultRadius: "sm",
  primaryColor: "cyan",
  cursorType: "pointer",
  respectReducedMotion: true,
  components: {
    Modal: { defaultProps: { centered: true, transitionProps: { duration: 120 }, overlayProps: { opacity: 0.4 } } },
    Tooltip: { defaultProps: { openDelay: 300, withArrow: false, transitionProps: { duration: 120 } } },
    Menu: { defaultProps: { transitionProps: { duration: 120 }, shadow: "none" } },
    Select: { defaultProps: { comboboxProps: { transitionProps: { duration: 120, transition: "fade" } } } },
  },
});
