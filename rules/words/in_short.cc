#include "rules/words/in_short.h"

#include <algorithm>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace plumbline::rules {
namespace {

constexpr size_t kMostRanges = 8;
constexpr size_t kFewest = 12;  // minimum bytes of a sentence or clause used alone
constexpr const char* kDash = "\u2013";

std::string Stated(const v1::Finding& finding, const char* key) {
  const auto found = finding.details().fields().find(key);
  return found == finding.details().fields().end() ? "" : found->second.string_value();
}

// Returns the first sentence. A full stop ends it if a blank and a capital follow; the one in "e.g.
// x" or "3.5", or in parentheses, does not.
std::string FirstSentence(const std::string& text) {
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    depth += text[at] == '(' ? 1 : text[at] == ')' ? -1 : 0;
    if ((text[at] != '.' && text[at] != ';') || depth > 0 || at < kFewest) continue;
    const bool last = at + 1 == text.size();
    const bool blank = !last && (text[at + 1] == ' ' || text[at + 1] == '\n');
    const bool capital = at + 2 < text.size() && text[at + 2] >= 'A' && text[at + 2] <= 'Z';
    if (last || (blank && (text[at] == ';' || capital))) return text.substr(0, at) + ".";
  }
  return text;
}

bool Begins(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), Begins));
}

// Returns the first `most` characters, each complete.
std::string_view Front(std::string_view text, size_t most) {
  size_t seen = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (Begins(text[at]) && ++seen > most) return text.substr(0, at);
  }
  return text;
}

// Cuts the text and adds an ellipsis. If there is a blank in its second half, cuts there.
std::string Clipped(const std::string& text, size_t most) {
  if (Characters(text) <= most) return text;
  std::string_view cut = Front(text, most - 1);
  const size_t blank = cut.rfind(' ');
  if (blank != std::string_view::npos && blank >= cut.size() / 2) cut = cut.substr(0, blank);
  while (!cut.empty() && (cut.back() == ',' || cut.back() == ':' || cut.back() == ';'))
    cut.remove_suffix(1);
  return std::string(cut) + "\u2026";
}

std::string WithoutParentheses(const std::string& text) {
  std::string out;
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const bool opens = text[at] == '(' && (depth > 0 || (at > 0 && text[at - 1] == ' '));
    if (opens && ++depth == 1 && !out.empty()) out.pop_back();
    if (depth == 0) out += text[at];
    if (text[at] == ')' && depth > 0) --depth;
  }
  return depth == 0 ? out : text;
}

// Returns the longest prefix that ends with a clause and fits.
std::string Clause(const std::string& text, size_t most) {
  if (Characters(text) <= most) return text;
  const std::string_view front = Front(text, most - 1);
  for (const std::string_view end : {": ", ", or ", ", and ", ", ", " or "}) {
    const size_t at = front.rfind(end);
    if (at != std::string_view::npos && at >= kFewest)
      return std::string(front.substr(0, at)) + ".";
  }
  return Clipped(text, most);
}

std::string ActOf(const v1::Finding& finding) {
  std::string act = WithoutCommands(FirstSentence(finding.fix()));
  if (act.empty()) return Clipped(absl::StrCat("Read what ", finding.rule(), " checks."), kMostAct);
  if (Characters(act) > kMostAct) act = WithoutParentheses(act);
  return Clause(act, kMostAct);
}

std::string ShortTitle(const std::string& title) {
  for (const std::string_view end : {": ", "; ", ", "}) {
    const size_t at = title.find(end);
    if (at != std::string::npos && at >= 16 && Characters(title.substr(0, at)) <= kMostShort)
      return title.substr(0, at);
  }
  return Clipped(title, kMostShort);
}

// Returns true if `stated` is `command` with its placeholders filled in: "py-spy dump --pid 7" for
// "py-spy dump --pid PID".
bool IsFilledIn(const std::string& command, const std::string& stated) {
  const size_t last = command.rfind(' ');
  return last != std::string::npos && !PlaceholdersIn(command.substr(last + 1)).empty() &&
         absl::StrContains(stated, command.substr(0, last + 1));
}

std::string Place(const v1::FindingSite& site) {
  std::string out = site.layer();
  const std::string ranks = RankText(site);
  // A finding about whole ranks has the op "step" or "ranks".
  const bool of_ranks = site.op() == "step" || site.op() == "ranks";
  const bool whole = out.empty() && of_ranks && !ranks.empty();
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
  out.where = Stated(finding, "place");
  if (out.where.empty()) out.where = Place(finding.site());
  out.title = Stated(finding, "title_short");
  if (out.title.empty()) out.title = ShortTitle(finding.title());
  out.act = Stated(finding, "act");
  if (out.act.empty()) out.act = ActOf(finding);
  out.act_short = Stated(finding, "act_short");
  if (out.act_short.empty()) out.act_short = Clause(out.act, kMostShort);
  out.commands = CommandsIn(finding.fix());
  if (const std::string stated = Stated(finding, "command"); !stated.empty()) {
    std::erase_if(out.commands, [&](const FixCommand& one) {
      return one.text == stated || IsFilledIn(one.text, stated);
    });
    out.commands.insert(out.commands.begin(), {"", stated});
  }
  return out;
}

}  // namespace plumbline::rules
