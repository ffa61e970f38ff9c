// A dictionary within a line of a log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plumbline::audit {

// A printed dictionary ("{'loss': 2.3, 'lr': 1e-4}"), of Python or JSON; `text` begins with its
// brace. Names of dictionaries within it join by '/'. None, True, texts and lists are no values.
// Keeps what it reads until the next call.
class LogDictionary {
 public:
  struct Member {
    std::string name;
    double value;
    bool at_end;
    double total = 0;  // "50/200": of a count; 0: none
  };

  // False: it is none, or cut; what was read before that is in members() all the same.
  bool Read(std::string_view text);
  size_t end() const { return at_; }  // of what was read
  const std::vector<Member>& members() const { return members_; }
  size_t others() const { return others_; }  // texts and lists that it holds
  // Names of members that are None or null, and of lists of numbers.
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
  std::string label_;  // {"key": "train_loss", "value": 2.5}: the name that it gives a value
};

// A dictionary that goes on over lines, as pprint and TensorFlow's logger print it:
// "{'loss': 2.5,", " 'lr': 0.01}". Not thread-safe.
class OpenDictionary {
 public:
  // The line, or all lines of the dictionary that it ends; empty: the next lines go on. Valid until
  // the next call.
  std::string_view Take(std::string_view line);

 private:
  static constexpr size_t kMostBytes = 1 << 20;
  std::string open_, whole_;
};

}  // namespace plumbline::audit
