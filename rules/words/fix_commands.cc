#include "rules/words/fix_commands.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "rules/words/pastable.h"

namespace plumbline::rules {
namespace {

constexpr size_t kMostCommands = 8;
constexpr size_t kMostLabel = 32;  // bytes of "Hugging Face Transformers"

void Add(std::string_view where, std::string_view text, std::vector<FixCommand>* out) {
  FixCommand command{std::string(where), LineOf(text)};
  // "Megatron-LM without --override" names an option that must be absent.
  const bool without = where.size() >= 7 && where.substr(where.size() - 7) == "without";
  if (without || !IsPastable(command.text) || out->size() == kMostCommands) return;
  if (std::find(out->begin(), out->end(), command) == out->end())
    out->push_back(std::move(command));
}

// Returns true for "--option", "key=value", "model.tie_weights()", "set_epoch"; not for "(rank",
// "e.g." or "batch."
bool IsCode(std::string_view word) {
  if (word.size() < 3) return false;
  if (word.substr(0, 2) == "--") return std::isalpha(static_cast<unsigned char>(word[2])) != 0;
  if (std::isalpha(static_cast<unsigned char>(word[0])) == 0) return false;
  const std::string_view inside = word.substr(1, word.size() - 2);
  return inside.find_first_of("=_(") != std::string_view::npos;
}

// Returns true for code that is complete, not only the name of a field or a function.
bool IsWholeCommand(std::string_view word) {
  return IsCode(word) &&
         (word.substr(0, 2) == "--" || word.find_first_of("=(.") != std::string_view::npos);
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '.')) text.remove_suffix(1);
  return text;
}

// Returns true for a name that code belongs to: few words, the first with a capital.
bool IsLabel(std::string_view text) {
  if (text.empty() || text.size() > kMostLabel) return false;
  return std::isupper(static_cast<unsigned char>(text[0])) != 0 &&
         std::count(text.begin(), text.end(), ' ') < 3;
}

// Splits "Megatron-LM: --option VALUE", "Megatron-LM --option" or "py-spy dump" into a label and
// the code.
bool Labelled(std::string_view part, FixCommand* out) {
  // If there are two alternatives, takes the first.
  part = Trimmed(part.substr(0, std::min(part.find(" or "), part.size())));
  const size_t colon = part.find(": ");
  if (colon != std::string_view::npos && IsLabel(part.substr(0, colon))) {
    const std::string_view after = Trimmed(part.substr(colon + 2));
    if (after.find_first_of("-=(_") == std::string_view::npos) return false;
    *out = {std::string(part.substr(0, colon)), std::string(after)};
    return true;
  }
  const size_t blank = std::min(part.find(' '), part.size());
  if (IsProgram(part.substr(0, blank)) || IsWholeCommand(part.substr(0, blank))) {
    *out = {"", std::string(part)};
    return true;
  }
  // Find the first word of code, and the name before it.
  for (size_t at = blank; at < part.size();) {
    const size_t end = std::min(part.find(' ', at + 1), part.size());
    if (IsCode(part.substr(at + 1, end - at - 1))) {
      if (!IsLabel(part.substr(0, at))) return false;
      *out = {std::string(part.substr(0, at)), std::string(part.substr(at + 1))};
      return true;
    }
    at = end;
  }
  return false;
}

// Returns the place where the parenthesis that opens at `open` closes. If it does not, returns
// npos.
size_t CloseOf(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if (depth == 0) return at;
  }
  return std::string_view::npos;
}

// Returns the parts of the text in parentheses: split at "; ", and at ", " outside of inner ones.
std::vector<std::string_view> PartsOf(std::string_view inside) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at < inside.size(); ++at) {
    depth += inside[at] == '(' ? 1 : inside[at] == ')' ? -1 : 0;
    const bool ends = (inside[at] == ';' || inside[at] == ',') && depth == 0 &&
                      at + 1 < inside.size() && inside[at + 1] == ' ';
    if (!ends) continue;
    parts.push_back(inside.substr(begin, at - begin));
    begin = at + 2;
  }
  parts.push_back(inside.substr(begin));
  return parts;
}

// Returns false for a parenthesis of a call, "f(x)", which is not a remark.
bool IsRemark(std::string_view text, size_t open) { return open > 0 && text[open - 1] == ' '; }

void AddBackticks(std::string_view fix, std::vector<FixCommand>* out) {
  for (size_t open = fix.find('`'); open != std::string_view::npos;) {
    const size_t close = fix.find('`', open + 1);
    if (close == std::string_view::npos) return;
    // A plain word in backticks is a name.
    const std::string_view text = fix.substr(open + 1, close - open - 1);
    if (text.find_first_of(" -_=(.:/") != std::string_view::npos) Add("", text, out);
    open = fix.find('`', close + 1);
  }
}

void AddRemarks(std::string_view fix, std::vector<FixCommand>* out) {
  for (size_t open = 0; (open = fix.find('(', open)) != std::string_view::npos; ++open) {
    const size_t close = CloseOf(fix, open);
    if (close == std::string_view::npos) return;
    if (!IsRemark(fix, open)) continue;
    for (const std::string_view part : PartsOf(fix.substr(open + 1, close - open - 1))) {
      FixCommand command;
      if (Labelled(part, &command)) Add(command.where, command.text, out);
    }
    open = close;
  }
}

// Adds options outside of parentheses: from "Megatron-LM --moe-aux-loss-coeff or ..." the option
// alone, and the name before it.
void AddOpenOptions(std::string_view fix, std::vector<FixCommand>* out) {
  int depth = 0;
  for (size_t at = 0; at + 3 < fix.size(); ++at) {
    depth += fix[at] == '(' ? 1 : fix[at] == ')' ? -1 : 0;
    if (depth > 0 || fix.substr(at, 3) != " --") continue;
    const size_t end = std::min(fix.find_first_of(" ,;:)", at + 1), fix.size());
    const std::string_view option = Trimmed(fix.substr(at + 1, end - at - 1));
    if (!IsCode(option)) continue;
    const size_t before = fix.find_last_of(" (", at - 1);
    const std::string_view name =
        before == std::string_view::npos ? "" : fix.substr(before + 1, at - before - 1);
    const bool named = IsLabel(name) && name.find_first_of(",;:.") == std::string_view::npos;
    Add(named ? name : "", option, out);
  }
}

}  // namespace

std::vector<FixCommand> CommandsIn(const std::string& fix) {
  std::vector<FixCommand> out;
  AddBackticks(fix, &out);
  AddRemarks(fix, &out);
  AddOpenOptions(fix, &out);
  return out;
}

std::string WithoutCommands(std::string fix) {
  std::erase(fix, '`');
  for (size_t open = 0; (open = fix.find('(', open)) != std::string::npos;) {
    const size_t close = CloseOf(fix, open);
    if (close == std::string::npos) break;
    const auto parts = PartsOf(std::string_view(fix).substr(open + 1, close - open - 1));
    const bool all =
        IsRemark(fix, open) && std::all_of(parts.begin(), parts.end(), [](std::string_view part) {
          FixCommand unused;
          return Labelled(part, &unused);
        });
    if (!all) {
      open = close;
      continue;
    }
    fix.erase(open - 1, close + 2 - open);
    open -= 1;
  }
  return fix;
}

}  // namespace plumbline::rules
