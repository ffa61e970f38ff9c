#include "audit/readers/input/reader.h"

#include <algorithm>
#include <utility>

namespace plumbline::audit {

void InputReport::Add(uint64_t offset, std::string text, bool error) {
  if (problems.size() + 1 < kMaxProblems) {
    problems.push_back({offset, std::move(text), error});
  } else if (problems.size() + 1 == kMaxProblems) {
    problems.push_back(
        {offset, "expected no further problems, found more, which are not listed", error});
  } else {
    problems.back().error |= error;
  }
}

void InputReport::Note(std::string text) {
  if (std::find(notes.begin(), notes.end(), text) != notes.end()) return;
  if (notes.size() < kMaxProblems) notes.push_back(std::move(text));
}

bool InputReport::failed() const {
  return std::any_of(problems.begin(), problems.end(), [](const Problem& p) { return p.error; });
}

std::string InputReport::Line(const Problem& problem) const {
  return path + ": byte " + std::to_string(problem.offset) + ": " + problem.text;
}

}  // namespace plumbline::audit
