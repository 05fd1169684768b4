"""Where each claim about the server is tested or measured.

| Claim | Test or benchmark |
|---|---|
| S1 load held, 300 requests/s, p99 below 100 ms | test_load_is_answered_without_errors, benchmarks/serving_load.py |
| S2 overload: only 200, 429, 503 | test_overload_is_refused_at_once_and_what_is_accepted_takes_no_longer |
| S2 accepted p99 below 250 ms at 5x | benchmarks/serving_load.py |
| S3 slow clients | test_slow_clients_are_dropped_and_others_do_not_notice |
| S4 raw sockets | test_what_is_no_request_is_refused_briefly_and_the_server_lives_on |
| S4 other bytes | test_requests_with_a_few_other_bytes_never_make_the_server_fail |
| S5 bodies | test_a_body_that_cannot_be_used_is_refused_in_one_form |
| S6 numbers | test_every_number_has_a_range_and_a_type_and_the_refusal_names_it |
| S6 on real models | test_a_server_from_its_first_line_to_its_last |
| S7 paths | test_paths_that_climb_lead_nowhere |
| S8 Host | test_only_the_names_of_the_server_pass |
| S9 other sites | test_no_page_of_another_site_gets_an_answer_on_any_route |
| S9 policies | test_a_route_without_a_policy_fails_when_the_application_is_built |
| S10 keys | test_requests_need_a_key, test_ten_wrong_keys_in_a_minute_are_enough, test_other_machines_need_keys |
| S11 clients that leave | test_the_work_for_a_client_that_leaves_ends_within_a_second |
| S11 streams | test_streams_obey_the_policies_of_their_route |
| S12 hot swap | test_swaps_under_load_fail_no_request_and_broken_folders_are_refused |
| S13 killed worker | test_a_killed_worker_costs_its_requests_and_nothing_else, test_twenty_kills_under_load |
| S13 over HTTP | test_a_server_from_its_first_line_to_its_last |
| S14 stop | test_a_stop_lets_running_requests_end_and_refuses_new_ones, test_a_server_from_its_first_line_to_its_last |
| S15 no outbound connection | test_a_server_without_a_network_answers_and_sends_nothing_to_anywhere |
| S16 batch mates, 1,000 requests | test_a_thousand_mixed_requests_have_the_answers_they_have_alone |
| S17 hostile texts | test_hostile_texts_are_parsed_in_no_time, test_long_and_odd_texts_take_no_time_from_others |
| S18 privacy | test_no_text_of_a_request_is_in_errors_logs_or_metrics |
| S19 soak | test_ten_minutes_of_good_and_hostile_requests_leave_nothing_behind |
| OpenAPI, negative data | test_the_document_tells_the_truth |
| the openai client | test_a_server_from_its_first_line_to_its_last |
| workers that hang | test_a_worker_that_hangs_is_replaced, test_a_worker_that_hangs_while_it_loads_is_replaced |
| dynamic and continuous batching, each 2x | benchmarks/serving.py |
| Ray | test_what_ray_is_given, test_a_replica_answers_and_refuses_in_json |
| container, systemd | test_the_recipes_use_options_that_exist |
"""

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_claim_names_a_test_or_a_benchmark_that_exists() -> None:
    sources = "".join(file.read_text() for file in HERE.glob("test_*.py"))
    rows = [line.split("|")[2] for line in str(__doc__).splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 25
    for row in rows:
        named = re.findall(r"\btest_\w+|benchmarks/\w+\.py", row)
        assert named, row
        for name in named:
            found = f"def {name}(" in sources if name.startswith("test_") else (HERE.parents[1] / name).is_file()
            assert found, name
