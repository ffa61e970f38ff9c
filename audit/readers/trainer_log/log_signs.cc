#include "audit/readers/trainer_log/log_signs.h"

#include <algorithm>
#include <array>

#include "audit/readers/log_text/log_bytes.h"

namespace plumbline::audit {
namespace {

constexpr size_t kSignsFar = 1024;

struct SignWord {
  std::string_view begin;  // beginning of the word, in lower case
  LineSign sign;
};
// Beginnings of the words, by their first letter.
constexpr SignWord kSignWords[] = {{"after", kSignAfter},      {"batch", kSignCount},
                                   {"comm_r", kSignCount},     {"continuing t", kSignResume},
                                   {"ep", kSignEpoch},         {"env_s", kSignCount},
                                   {"episode", kSignCount},    {"ev", kSignPhase},
                                   {"frame", kSignCount},      {"gen", kSignCount},
                                   {"i=", kSignCount},         {"kimg", kSignCount},
                                   {"loaded ch", kSignResume}, {"minib", kSignCount},
                                   {"num_s", kSignCount},      {"num_t", kSignCount},
                                   {"prog", kSignCount},       {"resum", kSignResume},
                                   {"restor", kSignResume},    {"round", kSignCount},
                                   {"server_r", kSignCount},   {"tick", kSignCount},
                                   {"timest", kSignCount},     {"total cap", kSignCapacity},
                                   {"total_t", kSignCount},    {"tr", kSignPhase},
                                   {"te", kSignPhase},         {"va", kSignPhase}};

// Returns, for each first letter, the index of its first word in kSignWords. The last entry is one
// past the end.
constexpr std::array<uint8_t, 27> FirstWords() {
  std::array<uint8_t, 27> first{};
  size_t at = 0;
  for (size_t letter = 0; letter < 26; ++letter) {
    first[letter] = static_cast<uint8_t>(at);
    while (at < std::size(kSignWords) &&
           kSignWords[at].begin[0] == static_cast<char>('a' + static_cast<int>(letter)))
      ++at;
  }
  first[26] = static_cast<uint8_t>(at);
  return first;
}
constexpr std::array<uint8_t, 27> kFirstWords = FirstWords();
static_assert(kFirstWords[26] == std::size(kSignWords), "sorted by first letter");

// 0: not a letter; kJoins: '_'; else: the letter's position in the alphabet, from 1, plus kJoins.
constexpr uint8_t kJoins = 1;
constexpr std::array<uint8_t, 256> Letters() {
  std::array<uint8_t, 256> letters{};
  for (uint8_t i = 0; i < 26; ++i)
    letters['a' + i] = letters['A' + i] = static_cast<uint8_t>(kJoins + 1 + i);
  letters['_'] = kJoins;
  return letters;
}
constexpr std::array<uint8_t, 256> kLetters = Letters();

bool BeginsWith(std::string_view text, std::string_view word) {
  if (text.size() < word.size()) return false;
  for (size_t i = 1; i < word.size(); ++i) {
    if ((text[i] | 0x20) != (word[i] | 0x20)) return false;
  }
  return true;
}

}  // namespace

uint32_t SignsIn(std::string_view line) {
  uint32_t signs = 0;
  bool letter_before = false;
  line = line.substr(0, kSignsFar);
  for (size_t at = 0; at < line.size(); ++at) {
    const uint8_t letter = kLetters[static_cast<unsigned char>(line[at])];
    const bool begins = letter > kJoins && !letter_before;
    letter_before = letter > 0;
    if (!begins) continue;
    const size_t index = letter - kJoins - 1u;
    for (size_t word = kFirstWords[index]; word < kFirstWords[index + 1]; ++word) {
      if (BeginsWith(line.substr(at), kSignWords[word].begin)) signs |= kSignWords[word].sign;
    }
  }
  return signs;
}

}  // namespace plumbline::audit
