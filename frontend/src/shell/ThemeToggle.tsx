import { useComputedColorScheme, useMantineColorScheme, type MantineColorScheme } from "@mantine/core";
import { Icon, type IconName } from "../components/icons";
import type { Scheme } from "../theme/tokens";

const NEXT: Record<MantineColorScheme, MantineColorScheme> = { light: "dark", dark: "auto", auto: "light" };
const SHOWN: Record<MantineColorScheme, { icon: IconName; word: string }> = {
  light: { icon: "sun", word: "light" },
  dark: { icon: "moon", word: "dark" },
  auto: { icon: "screen", word: "as the system" },
};

export function useThemeCycle(): () => void {
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  return () => setColorScheme(NEXT[colorScheme]);
}

export function useScheme(): Scheme {
  return useComputedColorScheme("light");
}

export function ThemeToggle() {
  const { colorScheme } = useMantineColorScheme();
  const cycle = useThemeCycle();
  const { icon, word } = SHOWN[colorScheme];
  return (
    <button type="button" className="btn ico" onClick={cycle} aria-label={`Theme: ${word}. Change`} title={`Theme: ${word} (T)`}>
      <Icon name={icon} />
    </button>
  );
}
