#include "base/units.h"

#include "support/catch.h"
#include "support/error_of.h"

namespace pd {
namespace {

TEST_CASE("Rates are bits or bytes a second with decimal prefixes") {
  CHECK(ParseRate("10Gbps", "x") == 1.25e9);
  CHECK(ParseRate("1.25GB/s", "x") == 1.25e9);
  CHECK(ParseRate("100Mbps", "x") == 12.5e6);
  CHECK(ParseRate("8bps", "x") == 1);
  CHECK(ParseRate("7B/s", "x") == 7);
  CHECK(ParseRate("3kB/s", "x") == 3e3);
  CHECK(ParseRate("2TB/s", "x") == 2e12);
  CHECK(ParseRate(".5kB/s", "x") == 500);
  CHECK(ParseRate("1e3kB/s", "x") == 1e6);
  CHECK(ParseRate("1e-3MB/s", "x") == Approx(1e3));
  CHECK(ParseRate("1e30B/s", "x") == 1e30);
}

TEST_CASE("Rates without a unit or a sane number are refused with the option's name") {
  for (const char* text :
       {"",         "10",       "1e9",    "0",       "0bps",      "0.0GB/s",   "-1Gbps",  "-0Gbps",
        "nan",      "nanGbps",  "infB/s", "inf",     "1e309B/s",  "1e300TB/s", "25Gb",    "25GB",
        "25gbps",   "25Gbit/s", "25GBps", "25KB/s",  "25PB/s",    "10 Gbps",   " 10Gbps", "10Gbps ",
        "10Gbps10", "0x10Gbps", "+1Gbps", "1,5Gbps", "1.5.2Gbps", "1e",        "Gbps",    "bps",
        "1eGbps",   "--1bps",   "1GiB/s", "10G",     "10Gbps,"}) {
    CAPTURE(text);
    const std::string error = ErrorOf([&] { ParseRate(text, "--bandwidth"); });
    CHECK_THAT(error, ContainsSubstring("--bandwidth: expected "));
    CHECK_THAT(error, ContainsSubstring(", found \""));
  }
  CHECK(ErrorOf([] { ParseRate("+5Gbps", "--bandwidth"); }) ==
        "--bandwidth: expected a rate with a unit, such as 10Gbps or 1.25GB/s, found \"+5Gbps\"");
  CHECK(ErrorOf([] { ParseRate("25Gb", "--bandwidth"); }) ==
        "--bandwidth: expected a rate with a unit, such as 10Gbps or 1.25GB/s, found \"25Gb\"");
  CHECK(ErrorOf([] { ParseRate("1e300TB/s", "--bandwidth"); }) ==
        "--bandwidth: expected a rate below 1e308B/s, found \"1e300TB/s\"");
  CHECK(ErrorOf([] { ParseRate("0bps", "--bandwidth"); }) ==
        "--bandwidth: expected a rate above zero, found \"0bps\"");
}

TEST_CASE("Sizes are bytes with decimal or binary prefixes") {
  CHECK(ParseSize("1B", "x") == 1);
  CHECK(ParseSize("5kB", "x") == 5'000);
  CHECK(ParseSize("512MB", "x") == 512'000'000);
  CHECK(ParseSize("16GB", "x") == 16'000'000'000);
  CHECK(ParseSize("1TB", "x") == 1'000'000'000'000);
  CHECK(ParseSize("1KiB", "x") == 1'024);
  CHECK(ParseSize("3MiB", "x") == 3'145'728);
  CHECK(ParseSize("16GiB", "x") == 17'179'869'184);
  CHECK(ParseSize("1.5GiB", "x") == 1'610'612'736);
  CHECK(ParseSize("1TiB", "x") == 1'099'511'627'776);
}

TEST_CASE("Sizes without a unit or a sane number are refused with the option's name") {
  for (const char* text : {"",       "16",     "0B",     "0.5B", "-1GB", "nanGB", "infGB", "1e19B",
                           "1e18kB", "1e309B", "16G",    "16gb", "16iB", "16kiB", "16Gib", "16GB/s",
                           "16 GB",  "16GB ",  "0x10GB", "+1GB", "GB",   "16GBB", "16GiBB"}) {
    CAPTURE(text);
    const std::string error = ErrorOf([&] { ParseSize(text, "--memory"); });
    CHECK_THAT(error, ContainsSubstring("--memory: expected "));
    CHECK_THAT(error, ContainsSubstring(", found \""));
  }
}

TEST_CASE("the size above a number of bytes is short and reads back as no less") {
  CHECK(SizeAbove(1) == "1B");
  CHECK(SizeAbove(999) == "999B");
  CHECK(SizeAbove(9'999) == "9.999kB");
  CHECK(SizeAbove(10'001) == "10.01kB");
  CHECK(SizeAbove(36'050'000) == "36.05MB");
  CHECK(SizeAbove(36'050'001) == "36.06MB");
  CHECK(SizeAbove(999'950'000'000) == "1TB");
  for (int64_t bytes = 1; bytes < 1'000'000'000'000'000; bytes = bytes * 7 / 3 + 1) {
    CAPTURE(bytes);
    const int64_t read = ParseSize(SizeAbove(bytes), "x");
    CHECK(read >= bytes);
    CHECK(static_cast<double>(read) <= static_cast<double>(bytes) * 1.001);
  }
}

TEST_CASE("Numbers are decimal, finite, whole texts inside their limits") {
  CHECK(ParseNumber("0.01", "x", 0, 1) == 0.01);
  CHECK(ParseNumber("1e-5", "x", 0, 1) == 1e-5);
  CHECK(ParseNumber("-2", "x", -3, 1) == -2);
  for (const char* text : {"", "nan", "inf", "-inf", "0x1", "1e309", " 1", "1 ", "+1", "1e", "2",
                           "-1", "1k", "0,5", "one"}) {
    CAPTURE(text);
    CHECK(ErrorOf([&] { ParseNumber(text, "--lr", 0, 1); }) ==
          "--lr: expected a number from 0 to 1, found \"" + std::string(text) + "\"");
  }
}

TEST_CASE("Integers are decimal, whole texts inside their limits") {
  CHECK(ParseInt("64", "x", 1, 100) == 64);
  CHECK(ParseInt("-9223372036854775808", "x", INT64_MIN, 0) == INT64_MIN);
  for (const char* text : {"", "0", "101", "2.5", "1e1", "0x10", "+5", " 5", "5 ", "5k", "nan",
                           "9223372036854775808", "99999999999999999999"}) {
    CAPTURE(text);
    CHECK(ErrorOf([&] { ParseInt(text, "-b", 1, 100); }) ==
          "-b: expected an integer from 1 to 100, found \"" + std::string(text) + "\"");
  }
  CHECK(ErrorOf([] { ParseInt("9223372036854775808", "-b", 1, INT64_MAX); }) ==
        "-b: expected an integer of at least 1, found \"9223372036854775808\"");
}

TEST_CASE("Bytes for people have three digits") {
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(999) == "999 B");
  CHECK(FormatBytes(1000) == "1.00 kB");
  CHECK(FormatBytes(9'996) == "10.0 kB");
  CHECK(FormatBytes(43e6) == "43.0 MB");
  CHECK(FormatBytes(1.25e9) == "1.25 GB");
  CHECK(FormatBytes(999'499) == "999 kB");
  CHECK(FormatBytes(999'999) == "1.00 MB");
  CHECK(FormatBytes(5e18) == "5000 PB");
}

}  // namespace
}  // namespace pd
