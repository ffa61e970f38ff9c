#include "audit/session/refusals.h"

#include <algorithm>
#include <cctype>

#include "audit/readers/input/file.h"

namespace plumbline::audit {
namespace {

constexpr std::string_view kExample = "\"step 10: loss 2.5 lr 1e-4\"";

struct Known {
  std::string_view begin;  // of the file
  std::string_view found;
};
// What is packed is not searched: it is unpacked by whoever knows where there is space for it.
constexpr Known kKnown[] = {
    {"\x28\xb5\x2f\xfd",
     "something packed: unpack it with tar -xf FILE (a tar) or unzstd FILE, then audit what it "
     "held"},
    {"\xfd"
     "7zXZ",
     "something packed: unpack it with tar -xf FILE (a tar) or unxz FILE, then audit what it held"},
    {"BZh",
     "something packed: unpack it with tar -xf FILE (a tar) or bunzip2 FILE, then audit what it "
     "held"},
    {"\x1f\x8b",
     "something packed: unpack it with tar -xf FILE (a tar) or gunzip FILE, then audit what it "
     "held"},
    {"PK\x03\x04", "something packed: unpack it with unzip FILE, then audit what it held"},
    {"PAR1",
     "a Parquet file: write it as CSV (python -c \"import pandas; "
     "pandas.read_parquet('FILE').to_csv('FILE.csv', index=False)\"), then audit that"},
    {"SQLite format 3",
     "an SQLite database of no tracker that is known: export its metrics as CSV with a column of "
     "steps, then audit that"},
    {"\x89PNG", "an image: audit the numbers that it was drawn from"},
    {"%PDF", "a PDF document: audit the numbers that it was drawn from"},
};

bool StartsLike(std::string_view text, std::string_view lower) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  return text.size() >= lower.size() &&
         std::equal(lower.begin(), lower.end(), text.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

bool HasDigitAndLetter(std::string_view line) {
  const auto is = [&](int (*test)(int)) {
    return std::any_of(line.begin(), line.end(),
                       [test](char c) { return test(static_cast<unsigned char>(c)) != 0; });
  };
  return is(std::isdigit) && is(std::isalpha);
}

std::string_view FirstLineWithNumber(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t first = line.find_first_not_of(" \t");
    if (first != std::string_view::npos && HasDigitAndLetter(line)) return line.substr(first);
  }
  return {};
}

}  // namespace

bool LooksLikeText(std::string_view head) {
  return !head.empty() && std::count_if(head.begin(), head.end(), [](char c) {
                            const auto byte = static_cast<unsigned char>(c);
                            return byte < 9 || (byte > 13 && byte < 27);
                          }) == 0;
}

bool LooksLikeLog(std::string_view path, std::string_view head) {
  static constexpr std::string_view kEndings[] = {".log", ".out",   ".err", ".txt",
                                                  ".csv", ".jsonl", ".tsv"};
  return LooksLikeText(head) && !FirstLineWithNumber(head).empty() &&
         std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

std::string RefusalOf(std::string_view path, std::string_view head) {
  if (head.size() > 262 && head.substr(257, 5) == "ustar")
    return "something packed: unpack it with tar -xf FILE, then audit what it held";
  for (const Known& known : kKnown) {
    if (head.starts_with(known.begin)) return std::string(known.found);
  }
  if (StartsLike(head, "<!doctype html") || StartsLike(head, "<html"))
    return "a web page: export the run's data as CSV or JSON from the tracker's page, then audit "
           "that";
  if (path.ends_with(".ipynb"))
    return "a notebook without the output of a training: run its cells and save it, or audit the "
           "log that the training writes";
  if (!LooksLikeText(head)) return "none of them";
  const std::string_view line = FirstLineWithNumber(head);
  std::string text =
      "none of them: a line of a log needs a step (or an epoch), a name and a "
      "number, such as " +
      std::string(kExample) +
      "; a table or JSON needs a column or key of steps (another name: --map)";
  if (!line.empty()) text += "; the first line with a number is " + Quoted(line);
  return text;
}

}  // namespace plumbline::audit
