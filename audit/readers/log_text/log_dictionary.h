// Reads a dictionary within a log line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// Reads a printed dictionary ("{'loss': 2.3, 'lr': 1e-4}") of Python or JSON; `text` begins with
// its brace. Joins names of nested dictionaries by '/'. None, True, texts and lists are not values.
// Keeps what it reads until the next call.
class LogDictionary {
 public:
  struct Member {
    std::string name;
    double value;
    bool at_end;
    double total = 0;  // total of a count "50/200"; 0 if there is none
  };

  // Returns false if the text is not a dictionary, or is truncated; members() then has the members
  // before that place.
  bool Read(std::string_view text);
  size_t end() const { return at_; }  // Returns the end of the text that was read.
  const std::vector<Member>& members() const { return members_; }
  // Returns the number of texts and lists in the dictionary.
  size_t others() const { return others_; }
  // Returns names of members that are None or null, and of lists of numbers.
  const std::vector<std::string>& absent() const { return absent_; }
  const std::vector<std::string>& lists() const { return lists_; }

 private:
  static constexpr size_t kMostDepth = 16;
  static constexpr size_t kMostMembers = 1 << 14;

  bool ReadKey();
  bool ReadValue(size_t depth);
  bool ReadOther();
  void TakeList(std::string_view value, bool at_end);
  bool ReadTensor();
  void TakeOther(std::string_view value, bool at_end);
  void NameByLabel();
  std::optional<int64_t> QuotedStep(std::string_view value) const;
  bool PassText(std::string_view* inside);
  void PassSpaces();
  void Add(double value, bool at_end);

  std::string_view text_;
  size_t at_ = 0;
  std::string name_;
  std::vector<Member> members_;
  std::vector<std::string> absent_, lists_;
  size_t others_ = 0;
  std::string label_;  // the name of the value in {"key": "train_loss", "value": 2.5}
};

// Joins a dictionary that spans lines, as pprint and TensorFlow's logger print it: "{'loss': 2.5,",
// " 'lr': 0.01}". Not thread-safe.
class OpenDictionary {
 public:
  // Returns the line, or if it ends a dictionary, all lines of this dictionary. Returns "" if the
  // next lines continue it. Valid until the next call.
  std::string_view Take(std::string_view line);

 private:
  static constexpr size_t kMostBytes = 1 << 20;
  std::string open_, whole_;
};

}  // namespace plumbline::audit
