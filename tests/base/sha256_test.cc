#include "base/sha256.h"

#include <gtest/gtest.h>

namespace plumbline {
namespace {

// FIPS 180-4's examples, and a million times "a".
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(HexText(Sha256Of("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexText(Sha256Of("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexText(Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexText(Sha256Of(std::string(1000000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnyLengthAreTheWhole) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += static_cast<char>(i * 31);
  const std::string whole = Sha256Of(text);
  for (size_t piece = 1; piece < 200; ++piece) {
    Sha256 sha;
    for (size_t at = 0; at < text.size(); at += piece) sha.Add(text.substr(at, piece));
    ASSERT_EQ(sha.Digest(), whole) << piece;
  }
}

}  // namespace
}  // namespace plumbline
