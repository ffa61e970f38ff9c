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

// A point ends a sentence where a blank and no small letter follow; not that of "e.g. x" or "3.5".
std::string FirstSentence(const std::string& text) {
  for (size_t at = 0; (at = text.find_first_of(".;:", at)) != std::string::npos; ++at) {
    const bool ends = at + 1 == text.size() || text[at + 1] == ' ' || text[at + 1] == '\n';
    const bool small = at + 2 < text.size() && text[at + 2] >= 'a' && text[at + 2] <= 'z';
    if (!ends || at < 12) continue;
    if (text[at] == '.' && small) continue;
    return text.substr(0, at) + ".";
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

void AddCommand(std::string_view command, std::vector<std::string>* out) {
  const std::string text(command);
  if (text.size() < 3 || out->size() == kMostCommands) return;
  if (std::find(out->begin(), out->end(), text) == out->end()) out->push_back(text);
}

// What stands between backticks; without any: words from "--option" to the next pause.
std::vector<std::string> CommandsIn(const std::string& fix) {
  std::vector<std::string> out;
  for (size_t open = fix.find('`'); open != std::string::npos;) {
    const size_t close = fix.find('`', open + 1);
    if (close == std::string::npos) break;
    AddCommand(std::string_view(fix).substr(open + 1, close - open - 1), &out);
    open = fix.find('`', close + 1);
  }
  for (size_t at = fix.find("--"); out.empty() && at != std::string::npos;) {
    if (at == 0 || fix[at - 1] == ' ' || fix[at - 1] == '(') {
      const size_t end = fix.find_first_of(",;)\n", at);
      std::string_view option = std::string_view(fix).substr(at, end - at);
      // An option and its value: what follows is words.
      const size_t first = option.find(' ');
      if (first != std::string_view::npos) {
        option = option.substr(0, std::min(option.find(' ', first + 1), option.size()));
      }
      while (!option.empty() && option.back() == '.') option.remove_suffix(1);
      AddCommand(option, &out);
    }
    at = fix.find("--", at + 2);
  }
  return out;
}

std::string Place(const v1::FindingSite& site) {
  std::string out = site.layer();
  if (!site.op().empty()) absl::StrAppend(&out, out.empty() ? "" : " ", site.op());
  const std::string ranks = RankText(site);
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
  if (out.act.empty()) out.act = FirstSentence(finding.fix());
  if (out.act.empty()) out.act = absl::StrCat("Read what ", finding.rule(), " checks.");
  out.commands = CommandsIn(finding.fix());
  if (const std::string said = Said(finding, "command"); !said.empty()) {
    out.commands.insert(out.commands.begin(), said);
  }
  if (!out.commands.empty()) out.command = out.commands.front();
  return out;
}

}  // namespace plumbline::server
