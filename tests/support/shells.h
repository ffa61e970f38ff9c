// Runs completion in real shells: loads a script, presses TAB and reads the offered words.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace plumbline::test {

inline bool HasShell(const std::string& shell) {
  return RunToEnd({"/usr/bin/env", shell, "-c", "true"}).status == 0;
}

inline std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Returns COMPREPLY for `words`; the cursor is at the last word. Returns "default" or "dirnames" if
// the script requests bash's own completion of files.
inline std::vector<std::string> BashOffers(const std::string& script,
                                           const std::vector<std::string>& words) {
  const TempFolder folder;
  std::string text = script + "compopt() { echo \"$2\"; }\nCOMP_WORDS=(";
  for (const std::string& word : words) text += "'" + word + "' ";
  text += ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_" + words[0];
  text += "\n((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const Ended ended = RunToEnd({"/usr/bin/env", "bash", "--norc", folder.Write("test", text)});
  return LinesOf(ended.output + ended.errors);
}

// Returns each line after TAB in one zsh on a terminal. If several words fit, all of them are
// inserted.
inline std::vector<std::string> ZshCompletes(const std::string& script,
                                             const std::vector<std::string>& lines) {
  const TempFolder folder;
  folder.Write("script", script);
  folder.Write(".zshrc", R"(cd $ZDOTDIR
autoload -U compinit && compinit -D -u
zstyle ':completion:*' completer _all_matches _complete
zstyle ':completion:*' insert yes
source ./script
show() { print -r -- $BUFFER >> shown; BUFFER= }
zle -N show
bindkey '^I' complete-word '^X' show
zle-line-init() { print >> shown }
zle -N zle-line-init
)");
  // Uses zsh's pseudo-terminal, whose output must be read. `timeout` ends a wait that would never
  // end.
  const std::string drive = folder.Write("drive", R"(zmodload zsh/zpty
cd $1
zpty shell "TERM=dumb ZDOTDIR=$1 zsh -d -i"
for line in '' "$@[2,-1]"; do
  [[ -z $line ]] || zpty -w -n shell "$line"$'\t\x18'
  until [[ -e shown && $(wc -l < shown) -gt $done ]]; do zpty -r -t shell x || sleep 0.02; done
  ((++done))
done
)");
  std::vector<std::string> command = {"/usr/bin/env", "timeout", "100", "zsh", "-f"};
  command.insert(command.end(), {drive, folder.path()});
  command.insert(command.end(), lines.begin(), lines.end());
  RunToEnd(command);
  std::vector<std::string> shown = LinesOf(ReadFile(folder.File("shown")));
  if (!shown.empty()) shown.erase(shown.begin());  // zsh is ready: an empty line
  return shown;
}

// Returns the completions that fish offers for `line`, without descriptions.
inline std::vector<std::string> FishOffers(const std::string& script, const std::string& line) {
  const TempFolder folder;
  const std::string text = "cd " + folder.path() + "\n" + script + "complete -C '" + line + "'\n";
  const Ended ended = RunToEnd(
      {"/usr/bin/env", "HOME=" + folder.path(), "fish", "--no-config", folder.Write("test", text)});
  std::vector<std::string> offers = LinesOf(ended.output + ended.errors);
  for (std::string& offer : offers) offer = offer.substr(0, offer.find('\t'));
  return offers;
}

}  // namespace plumbline::test
