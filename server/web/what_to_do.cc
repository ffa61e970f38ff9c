#include "server/web/what_to_do.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace plumbline::server {
namespace {

constexpr size_t kMostRanges = 8, kMostCommands = 8;
constexpr const char* kDash = "\u2013";

std::string Said(const v1::Finding& finding, const char* key) {
  const auto found = finding.details().fields().find(key);
  return found == finding.details().fields().end() ? "" : found->second.string_value();
}

// A point ends a sentence where a blank and a capital follow; not that of "e.g. x" or "3.5", and
// none in parentheses.
std::string FirstSentence(const std::string& text) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if ((text[at] != '.' && text[at] != ';') || depth > 0 || at < 12) continue;
    const bool last = at + 1 == text.size();
    const bool blank = !last && (text[at + 1] == ' ' || text[at + 1] == '\n');
    const bool capital = at + 2 < text.size() && text[at + 2] >= 'A' && text[at + 2] <= 'Z';
    if (last || (blank && (text[at] == ';' || capital))) return text.substr(0, at) + ".";
  }
  return text;
}

// Cut before a character, not within one.
std::string Clipped(const std::string& text, size_t most) {
  size_t characters = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) continue;
    if (++characters > most) return text.substr(0, at) + "\u2026";
  }
  return text;
}

std::string ShortTitle(const std::string& title) {
  for (const std::string_view end : {": ", "; ", ", "}) {
    const size_t at = title.find(end);
    if (at != std::string::npos && at >= 16 && at <= kShort) return title.substr(0, at);
  }
  return Clipped(title, kShort);
}

void AddCommand(std::string_view where, std::string_view text, std::vector<FixCommand>* out) {
  FixCommand command{std::string(where), std::string(text)};
  if (text.size() < 3 || out->size() == kMostCommands) return;
  if (std::find(out->begin(), out->end(), command) == out->end())
    out->push_back(std::move(command));
}

// "Megatron-LM: --option VALUE; DeepSpeed: key=value", which stands in parentheses.
void AddLabelled(std::string_view inside, std::vector<FixCommand>* out) {
  while (!inside.empty()) {
    const size_t end = std::min(inside.find("; "), inside.size());
    const std::string_view one = inside.substr(0, end);
    const size_t colon = one.find(": ");
    if (colon != std::string_view::npos &&
        one.find_first_of("-=(", colon) != std::string_view::npos) {
      AddCommand(one.substr(0, colon), one.substr(colon + 2), out);
    }
    inside.remove_prefix(std::min(end + 2, inside.size()));
  }
}

// Where the parenthesis that opens at `open` closes; npos: nowhere.
size_t CloseOf(const std::string& text, size_t open) {
  int depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if (depth == 0) return at;
  }
  return std::string::npos;
}

std::vector<FixCommand> CommandsIn(const std::string& fix) {
  std::vector<FixCommand> out;
  for (size_t open = fix.find('`'); open != std::string::npos;) {
    const size_t close = fix.find('`', open + 1);
    if (close == std::string::npos) break;
    AddCommand("", std::string_view(fix).substr(open + 1, close - open - 1), &out);
    open = fix.find('`', close + 1);
  }
  for (size_t open = 0; (open = fix.find('(', open)) != std::string::npos;) {
    const size_t close = CloseOf(fix, open);
    if (close == std::string::npos) break;
    AddLabelled(std::string_view(fix).substr(open + 1, close - open - 1), &out);
    open = close;
  }
  return out;
}

// Without parentheses of the kind above: they are commands, which stand apart.
std::string WithoutLabelled(std::string text) {
  for (size_t open = 0; (open = text.find('(', open)) != std::string::npos;) {
    const size_t close = CloseOf(text, open);
    if (close == std::string::npos) break;
    std::vector<FixCommand> found;
    AddLabelled(std::string_view(text).substr(open + 1, close - open - 1), &found);
    if (found.empty()) {
      open = close;
      continue;
    }
    const size_t from = open > 0 && text[open - 1] == ' ' ? open - 1 : open;
    text.erase(from, close + 1 - from);
    open = from;
  }
  return text;
}

std::string Place(const v1::FindingSite& site) {
  std::string out = site.layer();
  const std::string ranks = RankText(site);
  // What is said of ranks as a whole has "step" for its op.
  const bool whole = out.empty() && site.op() == "step" && !ranks.empty();
  if (!site.op().empty() && !whole) absl::StrAppend(&out, out.empty() ? "" : " ", site.op());
  if (!ranks.empty()) {
    absl::StrAppend(&out, out.empty() ? "" : ", ", site.ranks_size() == 1 ? "rank " : "ranks ",
                    ranks);
  }
  return out.empty() ? "the whole run" : out;
}

}  // namespace

std::string RankText(const v1::FindingSite& site) {
  std::vector<uint32_t> ranks(site.ranks().begin(), site.ranks().end());
  std::sort(ranks.begin(), ranks.end());
  std::string out;
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size(); ++ranges) {
    if (ranges == kMostRanges) return absl::StrCat(out, " and ", ranks.size() - i, " more");
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] <= ranks[last] + 1) ++last;
    absl::StrAppend(&out, out.empty() ? "" : ", ", ranks[i]);
    if (ranks[last] > ranks[i]) absl::StrAppend(&out, kDash, ranks[last]);
    i = last + 1;
  }
  return out;
}

InShort ShortOf(const v1::Finding& finding) {
  InShort out;
  out.title = Said(finding, "title_short");
  if (out.title.empty()) out.title = ShortTitle(finding.title());
  out.where = Place(finding.site());
  out.act = Said(finding, "act");
  if (out.act.empty()) out.act = WithoutLabelled(FirstSentence(finding.fix()));
  if (out.act.empty()) out.act = absl::StrCat("Read what ", finding.rule(), " checks.");
  out.commands = CommandsIn(finding.fix());
  if (const std::string said = Said(finding, "command"); !said.empty()) {
    out.commands.insert(out.commands.begin(), {"", said});
  }
  return out;
}

}  // namespace plumbline::server
