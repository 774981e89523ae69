-- A relay may stand by while an older one does all the work. The binaries before this one see no
-- difference: all of their relays take buckets.

ALTER TABLE outbox_relays ADD COLUMN stands_by boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN outbox_relays.stands_by IS
    'The relay takes no buckets while an older one is alive (relay.sharing = single).';
